"""What a release needs beside the code: the wheel, what is in it, and under which licences."""

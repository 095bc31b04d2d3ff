"""The release file: everything public about one release in one TOML file.

``sections`` declares what it can say, ``describe`` tells it, ``text`` reads and writes it. ``file`` is
``sg.ReleaseFile``, ``products`` makes its product. ``steps``, ``once``, ``arrivals`` and ``asked`` run
it, ``status`` and ``released`` are about what it made.
"""

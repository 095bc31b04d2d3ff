"""Python imports this at its start where ``tests.conftest.seeded_environment`` puts it on the path: the noise
that a process draws follows from the name of its test, so that no test fails by chance.
"""

import os
import random
import sys

_system, _drawn, _pid = os.urandom, random.Random(os.environ["SYNTHGEO_TEST"]), os.getpid()


def _urandom(count):
    within_noise = sys._getframe(1).f_code.co_filename.endswith("synthgeo/privacy/noise.py")
    return _drawn.randbytes(count) if within_noise and os.getpid() == _pid else _system(count)


os.urandom = _urandom

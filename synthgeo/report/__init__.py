"""The report: one self-contained page about a release, for the curator or for the public.

``page`` puts it together, ``sections`` decides what a product shows, ``charts`` and ``maps`` draw,
``template.html`` holds the rest.
"""

from synthgeo._callable import make_callable

make_callable(__name__, module="synthgeo.report.page")

"""The report: one self-contained page about a release, for the curator or for the public.

``page`` puts it together, ``sections`` decides what a product shows, ``charts`` and ``maps`` draw,
``template.html`` holds the rest.
"""

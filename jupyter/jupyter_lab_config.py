"""JupyterLab on the chapters: it opens in the book's folder and asks no other host for news."""

c = get_config()  # noqa: F821 (given by Jupyter)

c.LabApp.default_url = "/lab/tree/book"
c.LabApp.check_for_updates_class = "jupyterlab.handlers.announcements.NeverCheckForUpdate"
c.LabApp.news_url = None

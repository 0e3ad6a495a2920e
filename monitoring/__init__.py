"""Shows roll-ups, live lag and alarms of EMS inside the Django admin."""

from importlib.util import find_spec
from pathlib import Path


def _refuse_another_streams() -> None:
    """Raise ImportError if Python finds another ``streams`` than the one of EMS.

    It must be here, where nothing of it is imported yet: a folder of the project comes first on
    Python's path, and all that fails later is a name that this folder does not have.
    """
    ours = Path(__file__).resolve().parent.parent
    spec = find_spec("streams")
    origin = spec.origin if spec else None
    if origin is None or ours in Path(origin).resolve().parents:
        return
    found = Path(origin).parent if Path(origin).name == "__init__.py" else Path(origin)
    raise ImportError(
        f"Python finds another package 'streams', in {found}, in the place of the one of EMS, in"
        f" {ours}. Move it into a package of your project, for example to shop/streams/, and name"
        " it 'shop.streams' in INSTALLED_APPS and in imports: the label of the app stays"
        " 'streams', and so do its tables and migrations. Then leave 'streams' in INSTALLED_APPS:"
        " it is EMS."
    )


_refuse_another_streams()

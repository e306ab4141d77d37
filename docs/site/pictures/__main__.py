"""Write every picture to a folder, in light or dark as the reader's system is."""

import sys
from pathlib import Path

from docs.site.pictures import PICTURES

if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (out / f"{name}.svg").write_text(draw().standalone(), encoding="utf-8")

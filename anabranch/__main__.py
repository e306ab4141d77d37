"""`python -m anabranch`: the same as the command `anabranch`."""

from anabranch.cli import main

if __name__ == "__main__":
    main()

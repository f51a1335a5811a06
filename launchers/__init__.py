"""Ways to start a run, and the recipes that are shipped."""

from pathlib import Path

from scse_dist.errors import UserError

RECIPES = Path(__file__).parent / "recipes"


def recipe_names() -> list[str]:
    """Names of all shipped recipes, such as ``demo.yaml``."""
    return sorted(str(path.relative_to(RECIPES)) for path in RECIPES.rglob("*.yaml"))


def find_recipe(recipe: Path) -> Path:
    """The file itself or, for a bare name with or without its ending, the shipped recipe of that name.

    Raises:
        UserError: neither exists.
    """
    for candidate in (recipe, RECIPES / recipe, RECIPES / f"{recipe}.yaml"):
        if candidate.is_file():
            return candidate
    raise UserError(f"{recipe}: no such recipe; give a YAML file or one of {', '.join(recipe_names())}")

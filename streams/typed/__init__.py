"""The types of bodies: dataclasses, TypedDicts, Structs of msgspec and models of pydantic."""

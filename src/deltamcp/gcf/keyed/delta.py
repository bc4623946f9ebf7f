"""Deltas between keyed sets: makes and applies them (SPEC 10a.5, 10a.7)."""

from dataclasses import replace

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.keyed.model import GenericDelta, GenericSet
from deltamcp.gcf.roots import generic_pack_root, root_matches


def diff_generic_sets(base: GenericSet, new: GenericSet) -> GenericDelta:
    """Return the delta from `base` to `new`, each part ordered by identity.

    Raises:
        GcfError: the sets have different keys, fields or names.
    """
    if (base.key, base.fields, base.name) != (new.key, new.fields, new.name):
        raise GcfError("delta_invalid", "the sets have different keys, fields or names: send the new one in full")
    before, after = base.canonical_cells(), new.canonical_cells()
    rows = dict(sorted(new.by_identity().items()))
    removed_keys = sorted(
        (identity, row[base.key]) for identity, row in base.by_identity().items() if identity not in after
    )
    return GenericDelta(
        key=new.key,
        fields=new.fields,
        base_root=generic_pack_root(base),
        new_root=generic_pack_root(new),
        added=[row for identity, row in rows.items() if identity not in before],
        changed=[row for identity, row in rows.items() if before.get(identity, after[identity]) != after[identity]],
        removed=[value for _, value in removed_keys],
    )


def verify_generic_delta(base: GenericSet, delta: GenericDelta) -> GenericSet:
    """Apply a delta and return the new set: changed rows keep their places, added ones are at the end.

    Both roots of the delta may be short ones.

    Raises:
        GcfError: `base_mismatch` if the delta builds on another set, `delta_invalid` if it contradicts this one,
            `root_mismatch` if the new set has another root than the delta says. The reader then needs the full set.
    """
    if not root_matches(generic_pack_root(base), delta.base_root):
        raise GcfError("base_mismatch", f"the delta builds on {delta.base_root:.80}")
    if delta.key != base.key or (delta.fields and delta.fields != base.fields):
        raise GcfError("delta_invalid", "the delta has another key or other fields than its base")
    rows = base.by_identity()
    added, changed, removed = delta.identities()
    for identity in added:
        if identity in rows:
            raise GcfError("delta_invalid", f"the added {identity!a:.80} already exists")
    for identity in (*changed, *removed):
        if identity not in rows:
            raise GcfError("delta_invalid", f"the changed or removed {identity!a:.80} does not exist")
    rows.update(zip(changed, delta.changed, strict=True))
    for identity in removed:
        del rows[identity]
    rows.update(zip(added, delta.added, strict=True))
    new_set = replace(base, rows=tuple(rows.values()))
    if not root_matches(generic_pack_root(new_set), delta.new_root):
        raise GcfError("root_mismatch", f"the new set does not have the root {delta.new_root:.80}")
    return new_set

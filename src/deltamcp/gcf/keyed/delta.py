"""From one keyed set to the next (SPEC 10a.5, 10a.7)."""

from dataclasses import replace

from deltamcp.gcf.errors import GcfError
from deltamcp.gcf.keyed.model import GenericDelta, GenericSet
from deltamcp.gcf.roots import generic_pack_root, root_matches


def diff_generic_sets(base: GenericSet, new: GenericSet) -> GenericDelta:
    """What turns `base` into `new`, each part ordered by identity. Other fields, or another key, have no delta."""
    if (base.key, base.fields, base.name) != (new.key, new.fields, new.name):
        raise GcfError("delta_invalid", "the sets have different keys, fields or names: send the new one in full")
    before, after = base.canonical_cells(), new.canonical_cells()
    rows = dict(sorted(new.by_identity().items()))
    gone = sorted((identity, row[base.key]) for identity, row in base.by_identity().items() if identity not in after)
    return GenericDelta(
        key=new.key,
        fields=new.fields,
        base_root=generic_pack_root(base),
        new_root=generic_pack_root(new),
        added=[row for identity, row in rows.items() if identity not in before],
        changed=[row for identity, row in rows.items() if before.get(identity, after[identity]) != after[identity]],
        removed=[value for _, value in gone],
    )


def verify_generic_delta(base: GenericSet, delta: GenericDelta) -> GenericSet:
    """The set that `delta` makes of `base`: kept and changed rows in their places, added ones at the end.

    All or nothing. A GcfError says `base_mismatch` where the delta builds on another set, `delta_invalid` where it
    contradicts this one, and `root_mismatch` where the result is not what it promises: then ask for the full set.
    Both roots of the delta may be short ones.
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
    found = replace(base, rows=tuple(rows.values()))
    if not root_matches(generic_pack_root(found), delta.new_root):
        raise GcfError("root_mismatch", f"the result is not {delta.new_root:.80}")
    return found

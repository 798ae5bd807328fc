"""Upserts: how an insert into a derived table treats a row whose key is stored already.

A step may compute a row that an earlier step stored: an outcome that is delivered again, a unit
that is sighted again. The result does not depend on the order in which they are read.
"""

# Each stands after INSERT INTO the derived table.
KEEP_STORED = "ON CONFLICT DO NOTHING"
KEEP_FIRST_SIGHTING = """
ON CONFLICT (experiment_id, kind, unit) DO UPDATE SET at = least(sightings.at, excluded.at)
"""
KEEP_FIRST_CONVERSION = """
ON CONFLICT (experiment_id, metric, unit) DO UPDATE
SET received_at = least(conversions.received_at, excluded.received_at),
    late = conversions.late AND excluded.late,
    block = CASE WHEN conversions.late AND excluded.late THEN excluded.block END,
    arm = CASE WHEN conversions.late AND excluded.late THEN excluded.arm END,
    stratum = CASE WHEN conversions.late AND excluded.late THEN excluded.stratum END
"""
KEEP_FIRST_AMOUNT = """
ON CONFLICT (experiment_id, metric, unit, key) DO UPDATE
SET received_at = excluded.received_at, value = excluded.value
WHERE (excluded.received_at, excluded.value) < (amounts.received_at, amounts.value)
"""

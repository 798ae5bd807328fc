select 'a1' account_id, timestamp '2026-10-01 00:00:00' signed_up_at, 'CH' country, 1 lifetime_value

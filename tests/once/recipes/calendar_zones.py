"""Holds the periods at moments of two years, in eight zones, against the zone's own dates. Prints how many it held."""

from datetime import datetime
from zoneinfo import ZoneInfo

from calendar_quota import periods

ZONES = [
    ("Europe/Berlin", 2026),
    ("America/Havana", 2026),
    ("America/Santiago", 2025),
    ("Asia/Beirut", 2026),
    ("Pacific/Apia", 2011),
    ("Australia/Lord_Howe", 2026),
    ("Asia/Kathmandu", 2026),
    ("UTC", 2026),
]
changes = 0
for name, year in ZONES:
    zone, start = ZoneInfo(name), int(datetime(year, 1, 1, 5, 17, tzinfo=ZoneInfo("UTC")).timestamp())
    for now in range(start, start + 2 * 366 * 86400, 5 * 3600):
        local = datetime.fromtimestamp(now, zone)
        assert [name for name, _ in periods(zone, now)] == [local.strftime(f) for f in ("%Y-%m-%d", "%G-W%V", "%Y-%m")]
        for place, (period, end) in enumerate(periods(zone, now)):
            assert end > now and periods(zone, end - 1)[place] == (period, end), (name, now, period, end)
            assert periods(zone, end)[place][0] != period, (name, now, period, end)
            changes += 1
print(changes)

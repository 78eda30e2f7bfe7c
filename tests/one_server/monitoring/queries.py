"""Prints the queries of dashboard.json, for the addresses of an exporter and of an application."""

import json
import sys

addresses = dict(zip(["instance", "application"], sys.argv[1:]))
with open("dashboard.json") as file:
    dashboard = json.load(file)
datasource, *variables = dashboard["templating"]["list"]
assert [variable["name"] for variable in variables] == list(addresses), variables
for variable in variables:
    metric = variable["query"]["query"].removeprefix("label_values(").removesuffix(", instance)")
    print(f'{metric}{{instance="{addresses[variable["name"]]}"}}')
for panel in dashboard["panels"]:
    assert panel["title"] and panel["description"]
    for target in panel["targets"]:
        [name] = [name for name in addresses if f"instance=~'${name}'" in target["expr"]]
        for address in [".+", addresses[name]]:
            print(target["expr"].replace(f"${name}", address))

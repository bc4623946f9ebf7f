"""What is asked of the servers of the interop matrix beside the call that the tests make: data, as users have it.

`{folder}` and `{web}` are what they are in `tests.interop.servers`. The order counts: some calls
make what others read.
"""

from typing import Any

from bench.published.harmless_calls import HarmlessCall

TEAS = ("Assam", "Ceylon", "Darjeeling", "Dian Hong", "Earl Grey", "Genmaicha", "Gyokuro", "Keemun", "Matcha", "Sencha")
ROWS = ", ".join(f"('{tea} {size} g', {size}, {price}.5)" for price, tea in enumerate(TEAS) for size in (50, 100, 250))
ENTITIES: list[Any] = [
    {"name": tea, "entityType": "tea", "observations": [f"is kept in tin {number}", "steeps three minutes"]}
    for number, tea in enumerate(TEAS)
]
RELATIONS: list[Any] = [{"from": tea, "to": "Ada", "relationType": "is drunk by"} for tea in TEAS]

CALLS: dict[str, list[HarmlessCall]] = {
    "filesystem": [
        *(
            HarmlessCall(
                "write_file", {"path": f"{{folder}}/repository/{tea}.md", "content": f"# {tea}\n\nSteep it.\n"}
            )
            for tea in TEAS
        ),
        HarmlessCall("list_directory", {"path": "{folder}/repository"}),
        HarmlessCall("list_directory_with_sizes", {"path": "{folder}/repository"}),
        HarmlessCall("directory_tree", {"path": "{folder}/repository"}),
        HarmlessCall("search_files", {"path": "{folder}", "pattern": "**/*.md"}),
        HarmlessCall("read_multiple_files", {"paths": [f"{{folder}}/repository/{tea}.md" for tea in TEAS]}),
    ],
    "memory": [
        HarmlessCall("create_entities", {"entities": ENTITIES}),
        HarmlessCall("create_relations", {"relations": RELATIONS}),
        HarmlessCall("search_nodes", {"query": "Darjeeling"}),
        HarmlessCall("open_nodes", {"names": [*TEAS]}),
        HarmlessCall("read_graph", {}),
    ],
    "sqlite": [
        HarmlessCall("create_table", {"query": "CREATE TABLE teas (name TEXT PRIMARY KEY, grams INTEGER, price REAL)"}),
        HarmlessCall("write_query", {"query": f"INSERT INTO teas VALUES {ROWS}"}),
        HarmlessCall("list_tables", {}),
        HarmlessCall("describe_table", {"table_name": "teas"}),
        HarmlessCall("read_query", {"query": "SELECT * FROM teas"}),
    ],
    "git": [
        HarmlessCall("git_show", {"repo_path": "{folder}/repository", "revision": "HEAD"}),
        HarmlessCall("git_branch", {"repo_path": "{folder}/repository", "branch_type": "all"}),
    ],
    "time": [HarmlessCall("get_current_time", {"timezone": "Asia/Tokyo"})],
    "everything": [HarmlessCall("get-structured-content", {"location": "Chicago"})],
    "sequential-thinking": [
        HarmlessCall(
            "sequentialthinking",
            {"thought": f"Then {tea}.", "nextThoughtNeeded": True, "thoughtNumber": 2, "totalThoughts": 3},
        )
        for tea in TEAS[:2]
    ],
    "shopify-dev": [
        HarmlessCall("learn_shopify_api", {"api": api}) for api in ("functions", "liquid", "storefront-graphql")
    ],
}

"""What is asked of the servers of the interop matrix beside the call that the tests make: data, as users have it.

`{folder}` and `{web}` are what they are in `tests.interop.servers`. The order counts: some calls
make what others read.
"""

from typing import Any

from bench.published.harmless_calls import HarmlessCall

TEAS = ("Assam", "Ceylon", "Darjeeling", "Dian Hong", "Earl Grey", "Genmaicha", "Gyokuro", "Keemun", "Matcha", "Sencha")
CELLS = [[f"{tea} {size} g", size, price + 0.5] for price, tea in enumerate(TEAS) for size in (50, 100, 250)]
ROWS = ", ".join(f"('{name}', {size}, {price})" for name, size, price in CELLS)
BOOK, DOCUMENT = "{folder}/tea.xlsx", "{folder}/tea.docx"
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
    "excel": [
        HarmlessCall(
            "write_range", {"path": BOOK, "sheet": "Sheet1", "at": "A1", "rows": [["tea", "g", "price"], *CELLS]}
        ),
        HarmlessCall("list_workbooks", {"directory": "{folder}"}),
        HarmlessCall("read_range", {"path": BOOK, "sheet": "Sheet1"}),
        HarmlessCall("find_cells", {"path": BOOK, "query": "Darjeeling"}),
    ],
    "office-word": [
        HarmlessCall("add_heading", {"filename": DOCUMENT, "text": "Teas", "level": 1}),
        HarmlessCall(
            "add_table",
            {
                "filename": DOCUMENT,
                "rows": len(CELLS),
                "cols": 3,
                "data": [[str(cell) for cell in row] for row in CELLS],
            },
        ),
        HarmlessCall("get_document_info", {"filename": DOCUMENT}),
        HarmlessCall("get_document_text", {"filename": DOCUMENT}),
        HarmlessCall("get_document_outline", {"filename": DOCUMENT}),
        HarmlessCall("find_text_in_document", {"filename": DOCUMENT, "text_to_find": "Darjeeling"}),
        HarmlessCall("list_available_documents", {"directory": "{folder}"}),
    ],
    "shopify-dev": [
        HarmlessCall("learn_shopify_api", {"api": api}) for api in ("functions", "liquid", "storefront-graphql")
    ],
}

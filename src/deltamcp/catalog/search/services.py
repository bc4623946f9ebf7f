"""What services are known for: a request says CRM or wiki page, and the catalog has HubSpot or Confluence.

The table is general knowledge of such services. A line has words for a kind of service or for what it keeps, two words
joined where only both together say it, and then the names of services. A request that names the kind finds the
services; one that names a service does not find the others of its kind.
"""

from deltamcp.catalog.search.words import CONCEPT_PREFIX, CONCEPTS, stem

_SERVICES = """
    crm lead opportunity salespipeline: hubspot salesforce pipedrive zoho attio freshsales dynamics365 zendesksell
    helpdesk supportticket customersupport: zendesk freshdesk intercom servicenow helpscout freshservice gorgias
    ticket bugtracker issuetracker backlog: jira linear youtrack bugzilla redmine shortcut servicenow zendesk freshdesk
    kanban todo todolist tasklist projectmanagement: trello asana todoist clickup monday jira linear ticktick basecamp
    wiki knowledgebase wikipage: confluence notion gitbook bookstack mediawiki wikipedia outline slab guru
    note notebook notetaking: notion obsidian evernote onenote bear joplin roam logseq
    spreadsheet worksheet: excel gsheets sheets airtable smartsheet xlsx
    pullrequest mergerequest codereview: github gitlab bitbucket gitea gerrit azuredevops
    vcs sourcecontrol versioncontrol sourcecode: git github gitlab bitbucket gitea mercurial perforce
    ci cicd continuousintegration buildpipeline: jenkins circleci buildkite travis teamcity github gitlab azuredevops
    chat instantmessage directmessage workspacechat: slack discord msteams mattermost telegram whatsapp rocketchat zulip
    mail mailbox transactionalemail: gmail outlook sendgrid mailgun postmark resend fastmail exchange protonmail
    newsletter mailinglist emailcampaign: mailchimp klaviyo brevo mailerlite convertkit beehiiv substack sendgrid
    calendar scheduling bookinglink: gcal outlook calendly caldav
    videocall videomeeting videoconference webinar: zoom webex gotomeeting jitsi msteams
    sms textmessage phonecall voicecall: twilio vonage plivo messagebird sinch telnyx
    payment checkout paymentlink: stripe paypal adyen braintree mollie razorpay klarna
    subscription recurringbilling: stripe chargebee recurly paddle
    accounting bookkeeping ledger: quickbooks xero freshbooks netsuite sage
    ecommerce webshop onlineshop storefront: shopify woocommerce magento bigcommerce prestashop etsy
    cms blogpost contentmanagement: wordpress contentful sanity strapi drupal ghost webflow prismic
    sql relationaldatabase rdbms: postgres postgresql mysql sqlite mariadb mssql sqlserver oracle supabase neon duckdb
    warehouse datawarehouse lakehouse: snowflake bigquery redshift databricks clickhouse synapse athena
    nosql documentdatabase keyvalue: mongodb mongo dynamodb cosmosdb firestore couchbase cassandra redis
    vectordatabase vectorstore embeddingstore: pinecone weaviate qdrant chroma milvus pgvector
    cypher graphdatabase: neo4j memgraph neptune arangodb
    kql kustoquery: kusto sentinel loganalytics appinsights eventhouse adx
    promql: prometheus grafana mimir thanos victoriametrics
    logql: loki grafana
    spl: splunk
    nrql: newrelic
    dql: dynatrace
    jql: jira
    soql sosl: salesforce
    dax: powerbi
    siem threathunting: splunk sentinel qradar chronicle elastic crowdstrike wazuh
    observability apm telemetry tracing: datadog newrelic dynatrace grafana honeycomb prometheus cloudwatch appdynamics
    errortracking crashreport stacktrace: sentry rollbar bugsnag raygun crashlytics
    oncall pager incidentresponse: pagerduty opsgenie victorops incidentio
    featureflag featuretoggle experimentation: launchdarkly statsig unleash growthbook flagsmith optimizely
    webanalytics productanalytics funnel pageview: mixpanel amplitude posthog ga4 matomo plausible
    bi businessintelligence: tableau looker powerbi metabase superset qlik
    iac infrastructureascode: terraform pulumi cloudformation opentofu ansible crossplane
    orchestration containerorchestration pod: kubernetes k8s kubectl helm openshift nomad eks gke aks
    containerimage containerregistry: docker dockerhub ecr gcr harbor
    objectstorage blobstorage: s3 minio gcs r2 blob
    cloudstorage cloudfile filesharing: dropbox gdrive onedrive sharepoint googledrive nextcloud
    cdn edgecache: cloudflare fastly akamai cloudfront
    hosting webhosting paas: netlify vercel heroku digitalocean railway
    cloudprovider cloudcost: aws azure gcp digitalocean hetzner linode
    sso identityprovider iam: okta auth0 entra keycloak onelogin cognito
    passwordmanager secretmanager secretstore: 1password bitwarden lastpass vault doppler infisical
    esignature signdocument electronicsignature: docusign hellosign pandadoc adobesign
    survey questionnaire webform: typeform surveymonkey qualtrics jotform tally
    mockup uidesign wireframe prototype: figma sketch canva penpot zeplin
    whiteboard: miro mural figjam lucidchart excalidraw
    navigation drivingdirections geocoding streetmap: googlemaps mapbox osm openstreetmap tomtom
    webbrowser browserautomation headlessbrowser: playwright puppeteer selenium browserbase chrome
    websearch searchengine internetsearch: exa tavily brave duckduckgo serpapi bing google perplexity kagi searxng
    scraping webscraping crawler: firecrawl apify scrapy brightdata
    workflowautomation zap nocode: zapier n8n pipedream ifttt activepieces
    socialmedia socialnetwork tweet: twitter linkedin facebook instagram mastodon bluesky reddit threads
    streaming musicstreaming: spotify soundcloud deezer
    videoplatform videochannel: youtube vimeo twitch
    stockmarket shareprice marketdata: polygon yahoo yfinance alphavantage finnhub alpaca
    cryptocurrency blockchain token: coinbase binance coingecko etherscan kraken
    hr hris payroll timeoff: workday bamboohr gusto personio rippling hibob
    ats recruiting applicanttracking: greenhouse ashby workable
    encyclopedia: wikipedia britannica
    preprint scholarlypaper: arxiv pubmed semanticscholar crossref
    packageregistry: npm pypi cargo maven rubygems
    threed 3d 3dmodel: blender unity unreal rhino
    wordprocessor: word docx gdocs googledocs
    slidedeck slideshow: powerpoint pptx googleslides gslides
    homeautomation smarthome: homeassistant hue tuya smartthings
"""


def _read_table() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    by_kind: dict[str, dict[str, None]] = {}
    by_service: dict[str, dict[str, None]] = {}
    for line in _SERVICES.strip().splitlines():
        kinds, _, services = line.partition(":")
        concept = f"{CONCEPT_PREFIX}{kinds.split()[0]}:"
        for kind in kinds.split():
            by_kind.setdefault(stem(kind), {})[concept] = None
        for service in services.split():
            by_service.setdefault(stem(service), {})[concept] = None
    return (
        {kind: tuple(concepts) for kind, concepts in by_kind.items()},
        {service: tuple(concepts) for service, concepts in by_service.items()},
    )


_KINDS, SERVICES = _read_table()
"""The concepts of each service's name."""
QUERY_CONCEPTS = CONCEPTS | {word: (*CONCEPTS.get(word, ()), *concepts) for word, concepts in _KINDS.items()}
"""The concepts of each word of a query: its groups of synonyms, and the services that are known for it."""

"""The words of the search: splits text into terms, with stopwords and synonyms; and names that are like an unknown one.

The tables come from general knowledge of APIs and of requests to agents, never from labelled queries.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Sequence

_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])[0-9]*")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+")
_CLAUSE_END = re.compile(
    r"[.;?!\n]+(?:\s|$)|[。；？！]|\s\+\s|,\s(?:and|or|then)\s"
    r"|,?\s(?:and then|and also|then|as well as|additionally|finally)\s"
)
_MAX_EXPANSION = 4
"""The times that a text may grow when its characters are decomposed; one Arabic sign alone becomes 18 letters."""
_CACHED_WORDS, _MAX_CACHED_LETTERS = 50_000, 40
"""The number and the length of words whose terms are cached: a catalog of 10,000 tools has some 20,000 words."""


def terms(text: str) -> list[str]:
    """Splits a text into terms, in order: words without case and ending, parts of identifiers, no stopwords."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)[: _MAX_EXPANSION * len(text)]
    found: list[str] = []
    for word in _WORD.findall(text):
        found += _cached_word_terms(word) if len(word) <= _MAX_CACHED_LETTERS else _word_terms(word)
    return found


def split_clauses(query: str) -> list[str]:
    """Splits a query into sentences, and sentences into the parts that make separate requests."""
    return _CLAUSE_END.split(query)


def name_key(name: str) -> str:
    """Returns a name without case and punctuation, to compare it with the way people write it."""
    return "".join(_WORD.findall(name)).casefold() or name


def _word_terms(word: str) -> tuple[str, ...]:
    if not word.isascii():
        return tuple(_non_ascii_terms(word))
    parts = _PART.findall(word)
    if len(parts) == 2 and word.isalpha():
        parts.append(word)  # people write GitHub as "github"
    return tuple(stem(part) for part in map(str.lower, parts) if _is_meaningful(part))


_cached_word_terms = functools.lru_cache(_CACHED_WORDS)(_word_terms)


def _is_meaningful(word: str) -> bool:
    return len(word) > 1 and word not in STOPWORDS and not word.isdigit()


def _non_ascii_terms(word: str) -> Iterator[str]:
    """Yields whole words of scripts with spaces, and overlapping pairs of Chinese, Japanese and Korean characters."""
    end = 0
    for run in _CJK.finditer(word):
        yield from _terms_between(word[end : run.start()])
        text, end = run.group(), run.end()
        yield from (text[start : start + 2] for start in range(max(len(text) - 1, 1)))
    yield from _terms_between(word[end:])


def _terms_between(text: str) -> tuple[str, ...]:
    return _word_terms(text) if text.isascii() else (text.casefold(),)


def stem(word: str) -> str:
    """Removes the ending of a lower-case English word; the stem need not be a word, only the same for each form."""
    if word.endswith("sses") or (word.endswith("ies") and len(word) > 4):
        word = word[:-2]
    elif word.endswith("ing") and len(word) > 6:
        word = word[:-3]
    elif word.endswith("ed") and len(word) > 5:
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    if len(word) > 4 and word.endswith("e"):
        word = word[:-1]
    if len(word) > 3 and word.endswith("y"):
        word = word[:-1] + "i"
    elif len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word


_STOPWORDS = """
    a about above after again all also am an and any anyone anything are as at be because been before being between
    both but by can could did do does doing done down during each either else etc for from further had has have having
    he her here hers herself him himself his how however i if in into is it its itself just kindly least let like ll
    may me might more most much must my myself near no nor not now of off on once one only onto or other our ours
    ourselves out over own per please quite rather re really s same shall she should so some someone something such t
    than thank thanks that the their theirs them themselves then there these they this those through thus to too
    toward towards under until up upon us ve very via was we were what whatever when where whether which while who whom
    whose why will with within without would yes yet you your yours yourself

    able additional additionally along alongside already another available based certain currently eg ensure
    especially ever every everything finally first firstly following furthermore given gives giving hello help helps
    hey hi ie include includes including interested know known last lastly later latter look looking lot many moreover
    need needed needs next otherwise particular possible provide provided provides providing regarding related relevant
    required second secondly several specific specified specify sure tell third usage use used using various want
    wanted wants way well wish wondering

    api apis mcp server servers tool tools
"""
STOPWORDS = frozenset(_STOPWORDS.split())
"""Words that do not tell what a tool does: grammar, courtesy, and words of every tool description."""

_SYNONYMS = """
    create add new make insert generate build open register creation generation spawn
    delete remove drop clear erase destroy purge discard unset deletion removal wipe trash rid
    list show enumerate browse display view see
    get fetch retrieve read obtain load pull return access retrieval grab
    search find lookup query seek locate discover
    update edit modify change patch set alter revise adjust
    send post push deliver dispatch transmit forward
    notify alert remind inform notification reminder
    run execute start launch trigger invoke perform begin execution spin
    stop cancel kill terminate abort halt end cancellation quit
    pause suspend hold
    resume continue unpause
    copy duplicate clone replicate mirror
    move transfer migrate relocate migration
    rename retitle
    merge combine join concatenate unify
    split divide separate partition
    convert transform translate turn conversion transformation
    compare diff difference contrast comparison
    check verify validate test confirm inspect verification validation
    analyze analyse examine evaluate assess investigate analysis assessment
    calculate compute determine work count calculation calculator
    estimate predict forecast approximate projection prediction estimation guess
    recommend suggest advise propose recommendation suggestion
    download export save dump
    upload import attach ingest
    save store persist keep write put
    remember memorize recall memory remind
    upgrade bump update
    install setup provision deploy installation
    uninstall remove
    enable activate
    disable deactivate
    lock protect secure
    grant allow permit authorize permission authorization access
    revoke deny forbid block ban
    assign allocate delegate assignment
    subscribe follow watch subscription
    unsubscribe unfollow
    approve accept approval
    reject decline dismiss refuse
    close finish complete resolve
    reopen restore recover undelete revert rollback undo
    archive shelve
    schedule plan book reserve appointment booking reservation
    sort order rank arrange
    filter select narrow
    summarize summarise summary digest abstract overview recap
    explain describe clarify explanation
    detect recognize identify spot detection recognition identification
    extract parse scrape crawl extraction
    monitor track observe watch monitoring
    click press tap
    type enter fill input
    scroll swipe
    navigate goto visit browse
    wait sleep delay
    log record journal history output
    encrypt encode cipher encryption
    decrypt decode decipher
    compress zip shrink compression
    decompress unzip extract
    draw paint render sketch
    reply respond answer
    share publish release
    ask question prompt
    buy purchase order
    sell vend
    pay payment checkout charge
    refund reimburse reimbursement
    login signin authenticate logon auth authentication
    logout signout logoff
    signup register enroll registration enrollment
    email mail gmail inbox
    message chat dm conversation talk
    sms text
    call phone telephone dial
    image picture photo photograph pic
    screenshot capture snapshot
    video movie film clip
    show series episode tv
    actor cast star performer
    music song track audio
    voice speech spoken
    price cost fee rate quote pricing
    money currency cash
    stock share equity ticker
    crypto cryptocurrency bitcoin coin
    income revenue earnings profit
    tax taxes vat
    loan mortgage credit
    invoice bill billing receipt
    budget spending expense expenditure spend
    discount coupon promo voucher deal
    product item goods merchandise article
    shop store retailer
    customer client buyer
    vendor supplier seller merchant
    order purchase
    shipment shipping delivery parcel package ship
    repo repository
    branch ref
    commit revision changeset
    issue ticket bug defect
    task todo assignment chore
    folder directory dir
    file document doc
    note memo page
    spreadsheet excel sheet workbook xlsx
    worksheet tab sheet
    word docx
    presentation slide powerpoint pptx deck
    chart graph plot diagram
    table grid
    row record entry
    column field attribute property
    cell range
    user member person people
    employee staff worker
    team group
    role permission privilege
    account profile
    organization organisation company business firm corporation org
    password credential secret passphrase
    token apikey
    calendar event meeting appointment
    date day
    time clock hour timezone
    deadline due
    vm instance machine droplet
    container docker
    kubernetes k8s cluster
    pod workload
    database db sql
    schema structure
    collection table
    index indices
    cache redis
    bucket storage s3 blob
    queue topic
    function lambda serverless
    pipeline workflow job build
    deploy release rollout deployment
    metric measurement measure stat statistic
    alarm alert incident
    error exception failure fault crash fail broken
    warning caution
    dashboard panel
    trace span
    domain dns hostname
    ip address
    url link uri href
    website site webpage web page
    browser chrome
    tab window
    dom element node
    network traffic
    certificate ssl tls cert
    firewall waf
    location place position
    address street
    coordinate latitude longitude geocode
    distance far length
    route direction path
    travel trip journey itinerary
    flight airline plane airport
    hotel accommodation lodging room
    car vehicle automobile
    train rail railway
    weather forecast climate
    temperature heat
    restaurant dining eatery
    recipe dish cook cooking
    food meal nutrition diet
    drink beverage cocktail
    exercise workout fitness training
    health medical healthcare
    doctor physician
    patient subject
    disease illness condition
    drug medicine medication
    symptom sign
    news headline article
    book novel
    author writer
    review rating feedback rate
    comment remark annotation
    label tag
    category genre kind class type
    status state
    detail info information
    summary overview
    name title
    size dimension
    area surface
    amount quantity number count
    average mean
    maximum max highest largest biggest
    minimum min lowest smallest
    random arbitrary
    popular trending trend hot
    latest recent newest current
    top best leading
    language locale
    dictionary definition meaning
    synonym thesaurus
    translate translation
    spelling grammar
    sentiment emotion mood
    code source program script
    library package module dependency
    version release
    documentation docs manual
    setting configuration config option preference configure
    template boilerplate
    variable env environment
    key identifier id
    graph knowledge entity
    relation relationship link
    student pupil learner
    teacher instructor professor
    course class lesson
    school university college
    job position vacancy career
    salary wage pay compensation
    law legal
    crime criminal
    game match
    player athlete
    league competition tournament
    score point result
    standing ranking leaderboard
    house home property estate
    rent lease rental tenant
    energy power electricity
    water hydro
    bookmark favorite favourite
    follower subscriber audience
    timeline feed
    tweet post
    channel room
    thread reply
    emoji reaction
    attachment file
    contact person
    lead prospect
    campaign advertisement ad advertising
    survey questionnaire poll form
    quiz test exam
    holiday vacation
    pollution aqi
    earthquake quake seismic
    country nation
    city town municipality
    region zone
    zip postal postcode zipcode
    nearby nearest closest vicinity
    lyric song
    album record
    artist musician band singer
    transcript transcription transcribe subtitle caption
    horoscope zodiac astrology
    quotation quote saying
    color colour
    font typeface
    hash checksum
    uuid guid
    percent percentage ratio
    sum total
    multiply multiplication product
    division divide quotient
    subtract subtraction minus
    genome gene dna
    molecule chemical compound
    paper publication study research
    citation reference
    transaction transfer payment
    exchange conversion convert
    dividend payout
    portfolio holding investment
    insurance policy
    contract agreement
    case lawsuit litigation
    vote ballot election
    namespace project
    host node
    endpoint route
    webhook callback hook
    request call
    metadata header
    session cookie
    snapshot backup
    volume disk drive
    scale resize
    cron recurring schedule
    compile build
    console terminal shell command
    mouse cursor pointer
    keyboard key
    dropdown select option
    viewport screen resolution
    paragraph text
    heading header title
    style format formatting
    formula expression equation
    hyperlink link
    animation animate
    blog post
    backup dump
    availability vacancy slot
    duration length
    speed velocity
    weight mass
    birthday birthdate born
    nutrition calorie nutrient
    ticket reservation booking
    tutorial guide example
    conflict clash
    owner author
    assignee owner
    due expire expiry expiration
    limit quota threshold
    duplicate redundant
    empty blank
    restart reboot reload reset
    connect attach integrate integration
    disconnect detach unlink
    sign signature
    clean cleanup prune tidy
    mute silence snooze suppress
    switch toggle checkout
    invite invitation
    sprint iteration cycle
    board kanban
    playlist queue
    light lamp bulb
    device gadget sensor
    embedding vector semantic
    model llm
    dataset data
    classify classification categorize
    optimize optimization improve
    visualize visualization chart
    manage management administer
    arrive arrival
    depart departure
    teach train training
    slow latency performance
    visitor traffic analytics
    space storage capacity
    rewrite paraphrase rephrase
    proofread grammar spelling
    blame annotate
    crop trim cut
    solve equation
    root sqrt
    shape geometry
    probability chance likelihood
"""
SYNONYMS = tuple(tuple(line.split()) for line in _SYNONYMS.strip().splitlines())
"""Groups of words that mean the same in tool descriptions and in requests. A word may be in several groups."""


CONCEPT_PREFIX = "="
"""A character that no word begins with."""


def _concepts_by_stem() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for group in SYNONYMS:
        for word in group:
            found.setdefault(stem(word), {})[CONCEPT_PREFIX + group[0]] = None
    return {word: tuple(concepts) for word, concepts in found.items()}


def is_concept(term: str) -> bool:
    """Returns whether a term is a concept, which stands for a group of synonyms."""
    return term[0] == CONCEPT_PREFIX


CONCEPTS = _concepts_by_stem()
"""The concepts of each term: one for each group of synonyms that it belongs to, unlike any word."""


MIN_SIMILARITY = 0.6
"""Below it two names are hardly meant for each other."""

_SEPARATORS = re.compile(r"[-_. /]+")
_PLURAL = re.compile(r"s(?=[ \n]|$)")


class SimilarNames:
    """Ranks a set of names; made once for many unknown ones, because to make it takes longer than to rank."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names: list[str] = list(names)
        # At once, which is four times as fast; of no names that would be one that is empty.
        self._compared = _normalize("\n".join(self.names)).split("\n") if self.names else []

    def rank(self, name: str, limit: int) -> list[tuple[str, float]]:
        """Returns the names that are most like an unknown one, and how much from 0 to 1, best first."""
        from rapidfuzz import fuzz, process  # 30 ms to import, needed only where a name is wrong

        found = process.extract(_normalize(" ".join(name.split())), self._compared, scorer=fuzz.ratio, limit=limit)
        return [(self.names[index], score / 100) for _, score, index in found]


def _normalize(lines: str) -> str:
    """Returns names, one on each line, without case and separators, and words without the s of a plural."""
    return _PLURAL.sub("", _SEPARATORS.sub(" ", lines.casefold()))

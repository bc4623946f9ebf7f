"""The search index: ranks tools by the words of a query, in plain Python, and says where relevance stops.

BM25 over weighted fields finds candidates. Three measures then rank them: how much of the query a tool covers, how much
of its name is in the query, and how well the best tool of its group fits. A tool's part of the index does not depend on
the other tools (field lengths are compared with typical ones, not with this catalog's), so `put` and `drop` are cheap
and leave the index as if it had been built anew.

Both measures come from the query and its hits alone, so they hold for any catalog. The shares were chosen on four of
the seven query sets of the retrieval benchmark; on the other three what is shown loses at most 0.4 points of recall.
"""

import enum
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

from deltamcp.catalog.search.services import QUERY_CONCEPTS, SERVICES
from deltamcp.catalog.search.words import CONCEPTS, is_concept, name_key, split_clauses, stem, terms
from deltamcp.values import JSON

_SYNONYM_WEIGHT = 0.25
"""The weight of a synonym in the score, relative to the word itself."""
_SYNONYM_COVERAGE = 0.5
"""The weight of a synonym in the coverage, relative to the word itself."""
_COVERAGE_SHARE = 0.75
"""The share of the score that depends on how many of the query's words a tool has."""
_NAME_BONUS = 0.6
"""The bonus for a tool whose whole name is in the query."""
_CLAUSE_WEIGHT = 0.4
"""The weight of the clause a tool fits best, relative to the whole query: long requests need several tools."""
_GROUP_WEIGHT = 0.25
"""The weight of the best tool of the same group: requests seldom need only one tool of a server."""
_MAX_SCANNED_POSTINGS = 800
"""Postings read to find candidates, rarest words first; more frequent words only rank candidates."""
_MIN_CANDIDATES = 48
"""The least number of candidates that are scored."""
_REFINED_FACTOR = 4
"""How many times as many candidates the frequent words rank before the best are scored."""
_MAX_CLAUSES = 20
"""Clauses of a query that are scored separately; the rest of the query is one more."""
_MAX_CORRECTED_WORDS = 8
"""The longest query whose unknown words are corrected; longer ones have enough known words."""
_MIN_CORRECTED_LETTERS = 5
"""Shorter words are not corrected, as they are too similar to each other."""
_UNKNOWN_SHARE = 0.5
"""The weight in the coverage of words that no tool has: some say what is missing, others are values of parameters."""
_MIN_SPELLING_RATIO = 84
"""The percentage of letters, in order, that a word must share with a known word to be its misspelling."""


_NAMESPACE_END = re.compile(r"--|__|[./:]")
"""What ends the part of a name that a server or a generator puts before every name: `TwilioApi--`, `mcp__github__`."""
_MAX_NAME_CHARS = 256
"""The longest query that may be a name, which is the longest name of a tool."""


_MARKS = ".,:;?!()[]{}\"'`*"
_MAX_NAMING_CHARS = 1_000
"""The part of a query in which a name is looked for that no tool has."""
_MAX_SHORT_WORDS = 4
"""The words of a query that begins with what it is about."""


class Hit(NamedTuple):
    """A tool that a search found."""

    id: str
    score: float
    """1 for the best tool of a query, less for the others; scores of different queries cannot be compared."""
    coverage: float
    """The share of the query's words that the tool has, weighed by rarity."""
    fit: float
    """The same share beyond one word, which a tool may have by chance; of the clause that the tool fits best."""
    is_named: bool = False
    """Whether the query is the tool's name or contains it; such tools come first."""


ReasonKind: TypeAlias = Literal["word", "spelling", "meaning"]


class Reason(NamedTuple):
    """A word of a query for which a tool was found."""

    word: str
    """As the query has it."""
    kind: ReasonKind
    """Whether the tool has the word, one that is spelled much like it, or one of the same meaning."""
    weight: float
    """How much that says, before the rest of the query counts."""


class _NameMatch(enum.IntEnum):
    """How a query names a tool; the higher, the surer."""

    NONE = 0
    MENTIONED = 1
    """It contains the name, which has several words: a plain word may just be a word."""
    SAME_WORDS = 2
    """It is the name without its namespace, but for endings of words."""
    SAME_SHORT_NAME = 3
    """It is the name without its namespace, but for case and separators."""
    SAME_NAME = 4
    """It is the whole name, but for case and separators."""
    SAME_SPELLING = 5


class _Entry(NamedTuple):
    """The facts about a tool that ranking and `drop` need."""

    terms: tuple[str, ...]
    name: tuple[str, ...]
    spellings: frozenset[str]
    group: str


_Clause: TypeAlias = dict[str, float]
"""The weight of each term of a clause."""
_Scores: TypeAlias = dict[str, float]
"""Scores by tool id."""


class _Match(NamedTuple):
    """How the candidates match a clause or a query."""

    scores: _Scores
    """The scores of BM25."""
    covered_rarity: _Scores
    """The total rarity of the words that each tool has."""
    total_rarity: float
    """The total rarity of the words that some tool has."""
    unknown_rarity: float
    """The total rarity of the words that no tool has."""
    words: int
    """The number of all words."""

    def coverage(self, tool_id: str) -> float:
        """Returns the share of the words that a tool has, weighed by rarity."""
        total = self.total_rarity + _UNKNOWN_SHARE * self.unknown_rarity
        return self.covered_rarity.get(tool_id, 0.0) / (total or 1.0)

    def fit(self, tool_id: str) -> float:
        """Returns the share of the words that a tool has beyond one word, which it may have by chance."""
        if self.words < 2:
            return self.coverage(tool_id)
        return max(0.0, (self.words * self.coverage(tool_id) - 1) / (self.words - 1))

    def weighted_scores(self, name_factors: _Scores) -> _Scores:
        """Lowers scores by the share of the query that a tool lacks, and multiplies them by the factor of its name."""
        base_share, share_per_rarity = 1 - _COVERAGE_SHARE, _COVERAGE_SHARE / (self.total_rarity or 1.0)
        return {
            tool_id: score * name_factors[tool_id] * (base_share + share_per_rarity * self.covered_rarity[tool_id])
            for tool_id, score in self.scores.items()
        }


class SearchIndex:
    """Ranks tools by words. Equal contents give equal rankings, whatever the order of `put` and `drop`."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._postings: dict[str, _Scores] = {}
        """The weight of each term in each tool, by term."""
        self._ids_by_name: dict[str, set[str]] = {}
        """The ids of the tools that a name may mean, as it is spelled and without case and punctuation."""
        self._terms_by_prefix: dict[str, set[str]] = {}
        """Terms by their first two letters."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def put(self, id: str, tool: Mapping[str, JSON], group: str = "", path: str = "") -> None:
        """Adds a tool, or replaces the one of this id.

        Args:
            tool: An MCP tool definition. No key is required, and invalid values are ignored.
            group: The server or the category of the tool.
            path: Another name of the tool, below its group: `posts.list`.
        """
        self.drop(id)
        name = text_or_empty(tool.get("name"))
        weights = term_weights(tool, group)
        for term, weight in weights.items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = {}
                self._terms_by_prefix.setdefault(term[:2], set()).add(term)
            posting[id] = weight
        names = {name, id, group + name, path} - {""}
        action = path.rpartition(".")[2]
        short_names = {action, _NAMESPACE_END.split(action)[-1], _NAMESPACE_END.split(name)[-1]} - {""}
        spellings = frozenset(
            (*names, *map(name_key, names), *map(_short_key, short_names), *map(_words_key, short_names))
        ) - {"", _EMPTY_KEY}
        for spelling in spellings:
            self._ids_by_name.setdefault(spelling, set()).add(id)
        self._entries[id] = _Entry(tuple(weights), tuple(sorted(set(terms(name)))), spellings, group)

    def drop(self, id: str) -> None:
        """Removes the tool of this id, if there is one."""
        entry = self._entries.pop(id, None)
        if entry is None:
            return
        for term in entry.terms:
            posting = self._postings[term]
            del posting[id]
            if not posting:
                del self._postings[term]
                _discard(self._terms_by_prefix, term[:2], term)
        for spelling in entry.spellings:
            _discard(self._ids_by_name, spelling, id)

    def search(self, query: str, limit: int = 5, allowed_ids: Set[str] | None = None) -> list[Hit]:
        """Ranks the tools that fit a query, best first; none where the index knows no word of the query.

        Args:
            allowed_ids: The tools to search; all where it is None.
        """
        clauses = self._query_clauses(query)
        named = self._tools_named_in(query, allowed_ids)
        pool = self._candidates(clauses, max(limit, _MIN_CANDIDATES), allowed_ids) | named.keys()
        matches = [self._match_clause(clause, pool) for clause in clauses]
        whole = _merge_matches(matches)
        scores = self._add_group_scores(self._score_candidates(clauses, matches, whole, pool))
        top = max(scores.values(), default=0.0) or 1.0

        ranked = sorted(scores, key=lambda tool_id: (-scores[tool_id], tool_id))
        if named:
            ranked.sort(key=lambda tool_id: named.get(tool_id, _NameMatch.NONE), reverse=True)

        def hit(tool_id: str) -> Hit:
            name_match = named.get(tool_id, _NameMatch.NONE)
            if name_match >= _NameMatch.SAME_WORDS:
                return Hit(tool_id, 1.0, 1.0, 1.0, is_named=True)
            fit = max(match.fit(tool_id) for match in (*matches, whole))
            if name_match:
                return Hit(tool_id, 1.0, whole.coverage(tool_id), fit, is_named=True)
            return Hit(tool_id, scores[tool_id] / top, whole.coverage(tool_id), fit)

        return [hit(tool_id) for tool_id in ranked[: max(limit, 0)]]

    def reasons(self, query: str, tool_id: str) -> list["Reason"]:
        """Returns the words of a query that a tool has or has a word like, those that count most first."""
        found: dict[str, Reason] = {}
        for word in query.split():
            for term in terms(word):
                known = self._correct_spelling(term)
                posting = self._postings.get(known, {})
                related = [
                    concept
                    for concept in QUERY_CONCEPTS.get(known, ())
                    if concept in self._postings and tool_id in self._postings[concept]
                ]
                weight = posting.get(tool_id, 0.0) * self._rarity(posting)
                if weight:
                    how: ReasonKind = "word" if known == term else "spelling"
                    found.setdefault(word, Reason(word, how, weight))
                elif related:
                    weight = max(self._postings[one][tool_id] * self._rarity(self._postings[one]) for one in related)
                    found.setdefault(word, Reason(word, "meaning", _SYNONYM_WEIGHT * weight))
        return sorted(found.values(), key=lambda reason: -reason.weight)

    def missing_name(self, query: str, allowed_ids: Set[str] | None = None) -> str:
        """Returns the word of a query that names what is wanted and that no tool has; empty if there is none.

        That is a service's name anywhere in a query, or the first word of a short one. Other words that no tool has are
        mostly values of parameters, such as cities.

        Args:
            allowed_ids: The tools that count; all where it is None.
        """
        words = [word.strip(_MARKS) for word in query[:_MAX_NAMING_CHARS].split()]
        naming = [(word, found) for word in words if word.isalpha() and (found := terms(word))]
        is_short = len(words) <= _MAX_SHORT_WORDS
        for place, (word, found) in enumerate(naming):
            is_name = any(one in SERVICES for one in found) or (is_short and place == 0)
            if is_name and not any(self._is_known(one, allowed_ids) for one in found):
                return word
        return ""

    def _is_known(self, term: str, allowed_ids: Set[str] | None) -> bool:
        meant = (self._correct_spelling(term), *CONCEPTS.get(term, ()), *QUERY_CONCEPTS.get(term, ()))
        postings = [self._postings[one] for one in meant if one in self._postings]
        return any(allowed_ids is None or any(id_ in allowed_ids for id_ in posting) for posting in postings)

    def _add_group_scores(self, scores: _Scores) -> _Scores:
        groups = {tool_id: self._entries[tool_id].group or tool_id for tool_id in scores}
        best: _Scores = {}
        for tool_id, score in scores.items():
            best[groups[tool_id]] = max(score, best.get(groups[tool_id], 0.0))
        return {tool_id: score + _GROUP_WEIGHT * best[groups[tool_id]] for tool_id, score in scores.items()}

    def _query_clauses(self, query: str) -> list[_Clause]:
        """Splits a query into clauses, and returns the terms of each with their weights."""
        clauses = [words for words in map(terms, split_clauses(query)) if words]
        clauses[_MAX_CLAUSES:] = (
            [[word for clause in clauses[_MAX_CLAUSES:] for word in clause]] if clauses[_MAX_CLAUSES:] else []
        )
        if sum(map(len, clauses)) <= _MAX_CORRECTED_WORDS:
            clauses = [[self._correct_spelling(word) for word in words] for words in clauses]
        counts = [Counter(words + self._join_neighbours(words)) for words in clauses]
        return [{word: 1 + math.log(count) for word, count in clause.items()} for clause in counts]

    def _join_neighbours(self, words: list[str]) -> list[str]:
        """Joins neighbouring words where a tool writes them as one: `screen shot`, `mind map`."""
        joined = (stem(first + second) for first, second in pairwise(words))
        return [word for word in joined if (word in self._postings or word in QUERY_CONCEPTS) and word not in words]

    def _correct_spelling(self, word: str) -> str:
        """Returns the known word that a word misspells, or else the word; assumes its first two letters are right."""
        if word in self._postings or word in QUERY_CONCEPTS or len(word) < _MIN_CORRECTED_LETTERS or not word.isalpha():
            return word
        from rapidfuzz import fuzz, process  # 30 ms to import, needed only where a word is unknown

        known = self._terms_by_prefix.get(word[:2], ())
        near = process.extract(word, known, scorer=fuzz.ratio, score_cutoff=_MIN_SPELLING_RATIO, limit=None)
        return max(((score, term) for term, score, _ in near), default=(0.0, word))[1]

    def _tools_named_in(self, query: str, allowed_ids: Set[str] | None) -> dict[str, _NameMatch]:
        """Finds the tools that a query names, and how it does."""
        found: dict[str, _NameMatch] = {}

        def add(key: str, name_match: _NameMatch) -> None:
            ids = self._ids_by_name.get(key, ())
            found.update(dict.fromkeys(ids if allowed_ids is None else allowed_ids & set(ids), name_match))

        for token in query.split():
            key = name_key(token)
            if key in self._ids_by_name and len(terms(token)) > 1:
                add(key, _NameMatch.MENTIONED)
        if len(query) <= _MAX_NAME_CHARS:
            add(_words_key(query), _NameMatch.SAME_WORDS)
            add(_short_key(query), _NameMatch.SAME_SHORT_NAME)
            add(name_key(query), _NameMatch.SAME_NAME)
            add(query.strip(), _NameMatch.SAME_SPELLING)
        return found

    def _rarity(self, posting: Collection[str]) -> float:
        return math.log(1 + (len(self._entries) - len(posting) + 0.5) / (len(posting) + 0.5))

    def _candidates(self, clauses: list[_Clause], limit: int, allowed_ids: Set[str] | None) -> set[str]:
        """Finds candidates by BM25; `_MAX_SCANNED_POSTINGS` bounds the work."""
        term_weights = _query_terms(clauses)
        known = [term for term in term_weights if term in self._postings]
        known.sort(key=lambda term: (len(self._postings[term]), term))
        scores: _Scores = {}
        scanned = 0
        for index, term in enumerate(known):
            posting = self._postings[term]
            matching = (
                posting
                if allowed_ids is None
                else {tool_id: posting[tool_id] for tool_id in posting.keys() & allowed_ids}
            )
            scanned += len(matching)
            if index and scanned > _MAX_SCANNED_POSTINGS:
                scores = _top_scores(scores, _REFINED_FACTOR * limit)
                self._refine(scores, {frequent: term_weights[frequent] for frequent in known[index:]})
                break
            factor = term_weights[term] * self._rarity(posting)
            for tool_id, weight in matching.items():
                scores[tool_id] = scores.get(tool_id, 0.0) + factor * weight
        return set(_top_scores(scores, limit))

    def _refine(self, scores: _Scores, frequent: _Clause) -> None:
        """Adds the scores of frequent words, but not of their synonyms, which are still more frequent."""
        for term, weight in frequent.items():
            if not is_concept(term):
                posting = self._postings[term]
                factor = weight * self._rarity(posting)
                for tool_id in scores.keys() & posting.keys():
                    scores[tool_id] += factor * posting[tool_id]

    def _score_candidates(
        self, clauses: list[_Clause], matches: list[_Match], whole: _Match, pool: set[str]
    ) -> _Scores:
        """Scores the candidates by the whole query and by the clause each fits best."""
        name_factors = self._name_factors({word for clause in clauses for word in clause}, pool)
        whole_scores = whole.weighted_scores(name_factors)
        top = max(whole_scores.values(), default=0.0) or 1.0
        scores = {tool_id: whole_scores.get(tool_id, 0.0) / top for tool_id in pool}
        fit: _Scores = {}
        for match in matches:
            part = match.weighted_scores(name_factors) if len(matches) > 1 else whole_scores
            top = max(part.values(), default=0.0) or 1.0
            for tool_id, score in part.items():
                fit[tool_id] = max(score / top, fit.get(tool_id, 0.0))
        for tool_id, score in fit.items():
            scores[tool_id] += _CLAUSE_WEIGHT * score
        return scores

    def _match_clause(self, clause: _Clause, pool: set[str]) -> _Match:
        """Matches the candidates with the words of a clause and, at a lower weight, with their synonyms."""
        scores: _Scores = {}
        covered: _Scores = {}
        total_rarity = unknown_rarity = 0.0
        for word, weight in clause.items():
            posting = self._postings.get(word, {})
            concepts = [
                self._postings[concept] for concept in QUERY_CONCEPTS.get(word, ()) if concept in self._postings
            ]
            if not posting and not concepts:
                unknown_rarity += self._rarity(())
                continue
            rarity = self._rarity(posting) if posting else max(map(self._rarity, concepts))
            total_rarity += rarity
            exact = posting.keys() & pool
            for tool_id in exact:
                scores[tool_id] = scores.get(tool_id, 0.0) + weight * rarity * posting[tool_id]
                covered[tool_id] = covered.get(tool_id, 0.0) + rarity
            related: set[str] = set()
            for concept in concepts:
                factor = _SYNONYM_WEIGHT * weight * self._rarity(concept)
                near = concept.keys() & pool
                for tool_id in near:
                    scores[tool_id] = scores.get(tool_id, 0.0) + factor * concept[tool_id]
                related |= near
            for tool_id in related - exact:
                covered[tool_id] = covered.get(tool_id, 0.0) + _SYNONYM_COVERAGE * rarity
        return _Match(scores, covered, total_rarity, unknown_rarity, len(clause))

    def _name_factors(self, words: set[str], pool: set[str]) -> _Scores:
        """Returns the factor that raises each candidate's score, by the share of its name that is in the query."""
        query_concepts = {concept for word in words for concept in CONCEPTS.get(word, ())}
        shares: dict[str, tuple[float, float]] = {}
        factors: _Scores = {}
        for tool_id in pool:
            total_rarity = covered_rarity = 0.0
            for word in self._entries[tool_id].name:
                share = shares.get(word)
                if share is None:
                    rarity = self._rarity(self._postings[word])
                    synonym_share = _SYNONYM_COVERAGE * (not query_concepts.isdisjoint(CONCEPTS.get(word, ())))
                    share = shares[word] = (rarity, rarity * (1.0 if word in words else synonym_share))
                total_rarity += share[0]
                covered_rarity += share[1]
            factors[tool_id] = 1 + _NAME_BONUS * covered_rarity / total_rarity if total_rarity else 1.0
        return factors


def _short_key(name: str) -> str:
    """Returns the key of a name without its namespace, which is unlike the key of a whole name."""
    return f".{name_key(name.strip())}"


_EMPTY_KEY = "."
"""The key of a name without letters, or without a word that a search knows: every such name would be the same."""


def _words_key(name: str) -> str:
    """Returns the key of a name's words without their endings."""
    return "." + ".".join(terms(name))


def _merge_matches(matches: list[_Match]) -> _Match:
    """Merges the matches of all clauses into the match of the whole query."""
    if len(matches) == 1:
        return matches[0]
    scores: _Scores = {}
    covered: _Scores = {}
    for match in matches:
        for tool_id, score in match.scores.items():
            scores[tool_id] = scores.get(tool_id, 0.0) + score
            covered[tool_id] = covered.get(tool_id, 0.0) + match.covered_rarity[tool_id]
    return _Match(
        scores,
        covered,
        sum(match.total_rarity for match in matches),
        sum(match.unknown_rarity for match in matches),
        sum(match.words for match in matches),
    )


def _query_terms(clauses: list[_Clause]) -> _Clause:
    """Returns the terms of the whole query and their concepts, with their weights."""
    term_weights: _Clause = {}
    for clause in clauses:
        for word, weight in clause.items():
            term_weights[word] = term_weights.get(word, 0.0) + weight
            for concept in QUERY_CONCEPTS.get(word, ()):
                term_weights[concept] = term_weights.get(concept, 0.0) + _SYNONYM_WEIGHT * weight
    return term_weights


def _top_scores(scores: _Scores, limit: int) -> _Scores:
    """Returns the `limit` highest scores; of equal scores those of the first ids."""
    if len(scores) <= limit:
        return scores
    threshold = sorted(scores.values(), reverse=True)[limit - 1]
    best = {tool_id: score for tool_id, score in scores.items() if score > threshold}
    equal = sorted(tool_id for tool_id, score in scores.items() if score == threshold)
    return best | dict.fromkeys(equal[: limit - len(best)], threshold)


def _discard(sets: dict[str, set[str]], key: str, value: str) -> None:
    members = sets[key]
    members.discard(value)
    if not members:
        del sets[key]


_SCORE_SHARE = 0.65
"""The score, relative to the best, that a hit needs if the best has every word of the query; less if it has fewer."""
_NAMED_COVERAGE = 0.9
"""The coverage that other hits need where the query is the name of the best."""
_WEAK_SHARE = 0.1
"""Score times fit under which a hit is weak: 3 to 19 % of such hits are right in those sets, of others 23 to 68 %."""


def relevant_hits(hits: Sequence[Hit]) -> list[Hit]:
    """Returns the hits, best first, up to where relevance stops.

    The more of the query the best hit has, the less likely is it that one with a lower score was meant. Where the query
    is a name, only tools are shown that have its words as well.
    """
    if not hits:
        return []
    best = hits[0]
    min_score = _SCORE_SHARE * best.coverage
    min_coverage = _NAMED_COVERAGE if best.is_named and best.coverage == 1 else 0.0
    return [hit for hit in hits if hit.score >= min_score and hit.coverage >= min_coverage]


def is_weak(hit: Hit) -> bool:
    """Returns whether a hit has so little of the query that it is probably not what was meant."""
    return hit.score * hit.fit < _WEAK_SHARE


class _Field(NamedTuple):
    weight: float
    slope: float
    """How much the length of the field matters: 0 not at all, 1 in proportion; BM25's b."""
    typical_words: int
    """The median number of words, over the definitions of some 50 published servers."""


_NAME_FIELD = _Field(2.5, 0.6, 3)
_GROUP_FIELD = _Field(1.5, 0.0, 1)
_DESCRIPTION_FIELD = _Field(1.0, 0.6, 10)
_PARAMETERS_FIELD = _Field(1.0, 0.5, 4)
_NOTES_FIELD = _Field(0.6, 0.5, 12)
_SERVICE_FIELDS = (_NAME_FIELD, _GROUP_FIELD, _DESCRIPTION_FIELD)
"""The fields that tell which service a tool belongs to."""
_MAX_NOTES_CHARS = 1500
"""Characters of the parameters' descriptions that are indexed; the rest is examples and exceptions."""
_MAX_CHOICES = 20
"""Values of an enumeration that are indexed; longer ones list the world's currencies or time zones."""
_MAX_FIELD_CHARS = 50_000
"""Characters of a field that are indexed."""
_MAX_NODES = 10_000
"""Nodes of a schema that are indexed; published tools have up to 2,000."""
_SATURATION = 1.2
"""How soon further repetitions of a word stop adding weight; BM25's k1."""


def term_weights(tool: Mapping[str, JSON], group: str) -> dict[str, float]:
    """Returns the terms of a tool, each with its saturated weight over all fields."""
    names, notes = _parameter_names_and_notes(tool.get("inputSchema"))
    fields = (
        (_NAME_FIELD, text_or_empty(tool.get("name"))),
        (_GROUP_FIELD, group),
        (_DESCRIPTION_FIELD, f"{text_or_empty(tool.get('title'))} {text_or_empty(tool.get('description'))}"),
        (_PARAMETERS_FIELD, " ".join(names)),
        (_NOTES_FIELD, " ".join(notes)[:_MAX_NOTES_CHARS]),
    )
    counts: dict[str, float] = {}
    services: set[str] = set()
    for field, text in fields:
        words = terms(text[:_MAX_FIELD_CHARS])
        unit = field.weight / (1 - field.slope + field.slope * len(words) / field.typical_words)
        for word in words:
            counts[word] = counts.get(word, 0.0) + unit
        if field in _SERVICE_FIELDS:
            services.update(SERVICES.keys() & words)
    concepts: dict[str, float] = {}
    for word, count in counts.items():
        for concept in CONCEPTS.get(word, ()):
            concepts[concept] = max(count, concepts.get(concept, 0.0))
    for service in services:
        for concept in SERVICES[service]:
            concepts[concept] = max(counts[service], concepts.get(concept, 0.0))
    counts.update(concepts)
    return {term: (_SATURATION + 1) * count / (_SATURATION + count) for term, count in counts.items()}


def _parameter_names_and_notes(schema: JSON) -> tuple[list[str], list[str]]:
    """Returns the names of parameters at any depth, and their descriptions and choices."""
    names: list[str] = []
    notes: list[str] = []
    pending = [schema]
    visited = 0
    while pending and visited < _MAX_NODES:
        visited += 1
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(reversed(node))
        if not isinstance(node, dict):
            continue
        properties = node.get("properties")
        if isinstance(properties, dict):
            names += map(str, properties)
            notes += [
                text_or_empty(child.get("description")) for child in properties.values() if isinstance(child, dict)
            ]
            pending.extend(properties.values())
        choices = node.get("enum")
        if isinstance(choices, list):
            notes += filter(None, map(text_or_empty, choices[:_MAX_CHOICES]))
        pending += [node.get(keyword) for keyword in ("items", "additionalProperties", "anyOf", "oneOf", "allOf")]
        for definitions in (node.get("$defs"), node.get("definitions")):
            if isinstance(definitions, dict):
                pending.extend(definitions.values())
    return names, notes


def text_or_empty(value: JSON) -> str:
    return value if isinstance(value, str) else ""

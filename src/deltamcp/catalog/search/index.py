"""The search for tools: ranks their definitions by the words of a query, in plain Python.

BM25 over weighted fields finds candidates; how much of the query a tool covers, how much of its name is asked for, and
how well the other tools of its group do then decide among them. Nothing in a tool's share of the index depends on the
other tools (field lengths are compared with typical ones, not with this catalogue's), so adding and dropping are cheap
and leave the index as if it had been built anew.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from deltamcp.catalog.search import fields
from deltamcp.catalog.search.words import CONCEPTS, is_concept, name_key, split_clauses, stem, terms
from deltamcp.values import JSON

_SYNONYM_WEIGHT = 0.25
"""A word's synonym against the word itself, in the score."""
_SYNONYM_COVERAGE = 0.5
"""A word's synonym against the word itself, in coverage."""
_COVERAGE_SHARE = 0.75
"""The share of a score that a tool loses when it has none of the query's words."""
_NAME_BONUS = 0.6
"""The bonus for a tool whose whole name is asked for."""
_CLAUSE_WEIGHT = 0.4
"""The say of the sentence a tool fits best, beside the whole query: long requests need several tools."""
_GROUP_WEIGHT = 0.25
"""The say of the best tool of the same group: requests seldom need one tool of a server only."""
_MAX_SCANNED_POSTINGS = 800
"""Postings read to find candidates, rarest words first; what is more frequent only tells candidates apart."""
_MIN_CANDIDATES = 48
"""Tools that are looked at closely, of those found."""
_REFINED_FACTOR = 4
"""Times as many go through the frequent words."""
_MAX_CLAUSES = 20
"""Clauses of a query scored apart; what is beyond them is one more."""
_MAX_CORRECTED_WORDS = 8
"""Queries up to this length have their unknown words compared with known ones; longer ones have words enough."""
_MIN_CORRECTED_LETTERS = 5
"""Shorter words are too like each other."""
_MIN_SPELLING_RATIO = 84
"""Percent of letters two words share, in order, to be the same word misspelt."""


class Hit(NamedTuple):
    id: str
    score: float
    """1 for a query's best tool, less for the others: no measure across queries."""


class _Entry(NamedTuple):
    """What it takes to rank a tool, and to drop it."""

    terms: tuple[str, ...]
    name: tuple[str, ...]
    keys: frozenset[str]
    group: str


_Clause: TypeAlias = dict[str, float]
"""By term, how much it is asked for."""
_Scores: TypeAlias = dict[str, float]
"""By tool."""


class _Match(NamedTuple):
    scores: _Scores
    """BM25's."""
    covered_rarity: _Scores
    """The rarity of the words each tool has."""
    total_rarity: float
    """The rarity of all words."""

    def weighted_scores(self, named: _Scores) -> _Scores:
        """The scores, less for what a tool does not cover, more by the factor for its name."""
        missing, having = 1 - _COVERAGE_SHARE, _COVERAGE_SHARE / (self.total_rarity or 1.0)
        return {
            tool_id: score * named[tool_id] * (missing + having * self.covered_rarity[tool_id])
            for tool_id, score in self.scores.items()
        }


class SearchIndex:
    """Ranks tools by words. The order of `put` and `drop` leaves no trace: equal contents give equal rankings."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._postings: dict[str, _Scores] = {}
        """By term, the weight it has in each tool."""
        self._ids_by_name_key: dict[str, set[str]] = {}
        """By name without case and punctuation, the tools it may mean."""
        self._terms_by_prefix: dict[str, set[str]] = {}
        """By two letters, the terms that begin with them."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def put(self, id: str, tool: Mapping[str, JSON], group: str = "") -> None:
        """Adds a tool, or replaces the one of this id.

        Args:
            tool: An MCP tool definition. Nothing in it is required, and what has no meaning is passed over.
            group: Where it comes from: a server's name or a category.
        """
        self.drop(id)
        name = fields.text_or_empty(tool.get("name"))
        weights = fields.term_weights(tool, group)
        for term, weight in weights.items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = {}
                self._terms_by_prefix.setdefault(term[:2], set()).add(term)
            posting[id] = weight
        keys = frozenset(filter(None, (name_key(name), name_key(id), name_key(group + name))))
        for each in keys:
            self._ids_by_name_key.setdefault(each, set()).add(id)
        self._entries[id] = _Entry(tuple(weights), tuple(sorted(set(terms(name)))), keys, group)

    def drop(self, id: str) -> None:
        """Forgets a tool; nothing happens where there is none of this id."""
        entry = self._entries.pop(id, None)
        if entry is None:
            return
        for term in entry.terms:
            posting = self._postings[term]
            del posting[id]
            if not posting:
                del self._postings[term]
                _discard(self._terms_by_prefix, term[:2], term)
        for each in entry.keys:
            _discard(self._ids_by_name_key, each, id)

    def search(self, queries: Sequence[str], limit: int = 5, among: Set[str] | None = None) -> list[Hit]:
        """The tools that fit best, best first, of those among which one is sought; none where no word is known.

        With several queries, the best of each come first, then the others by how near they are to the best of theirs.
        """
        best: _Scores = {}
        total: _Scores = {}
        for query in queries:
            for tool_id, score in self._rank(query, limit, among).items():
                best[tool_id] = max(score, best.get(tool_id, 0.0))
                total[tool_id] = total.get(tool_id, 0.0) + score
        ranked = sorted(best, key=lambda tool_id: (-best[tool_id], -total[tool_id], tool_id))
        return [Hit(tool_id, best[tool_id]) for tool_id in ranked[: max(limit, 0)]]

    def _rank(self, query: str, limit: int, among: Set[str] | None) -> _Scores:
        clauses = self._query_clauses(query)
        mentioned = self._tools_named_in(query)
        if among is not None:
            mentioned &= among
        pool = self._candidates(clauses, max(limit, _MIN_CANDIDATES), among) | mentioned
        scores = self._add_group_scores(self._score_candidates(clauses, pool))
        top = max(scores.values(), default=0.0) or 1.0
        if mentioned:
            scores = {tool_id: score + top * (tool_id in mentioned) for tool_id, score in scores.items()}
            top = max(scores.values())
        return {tool_id: score / top for tool_id, score in scores.items()}

    def _add_group_scores(self, scores: _Scores) -> _Scores:
        groups = {tool_id: self._entries[tool_id].group or tool_id for tool_id in scores}
        best: _Scores = {}
        for tool_id, score in scores.items():
            best[groups[tool_id]] = max(score, best.get(groups[tool_id], 0.0))
        return {tool_id: score + _GROUP_WEIGHT * best[groups[tool_id]] for tool_id, score in scores.items()}

    def _query_clauses(self, query: str) -> list[_Clause]:
        """The terms of each sentence or so, and how much each is asked for."""
        clauses = [words for words in map(terms, split_clauses(query)) if words]
        clauses[_MAX_CLAUSES:] = (
            [[word for clause in clauses[_MAX_CLAUSES:] for word in clause]] if clauses[_MAX_CLAUSES:] else []
        )
        if sum(map(len, clauses)) <= _MAX_CORRECTED_WORDS:
            clauses = [[self._correct_spelling(word) for word in words] for words in clauses]
        counts = [Counter(words + self._join_neighbours(words)) for words in clauses]
        return [{word: 1 + math.log(count) for word, count in clause.items()} for clause in counts]

    def _join_neighbours(self, words: list[str]) -> list[str]:
        """What neighbours are together where tools write them as one: `screen shot`, `mind map`."""
        joined = (stem(first + second) for first, second in pairwise(words))
        return [word for word in joined if word in self._postings and word not in words]

    def _correct_spelling(self, word: str) -> str:
        """The word, or the known one that it seems to be a misspelling of. Its first two letters are taken as right."""
        if word in self._postings or word in CONCEPTS or len(word) < _MIN_CORRECTED_LETTERS or not word.isalpha():
            return word
        from rapidfuzz import fuzz, process  # 30 ms to import, needed only where a word is unknown

        known = self._terms_by_prefix.get(word[:2], ())
        near = process.extract(word, known, scorer=fuzz.ratio, score_cutoff=_MIN_SPELLING_RATIO, limit=None)
        return max(((score, term) for term, score, _ in near), default=(0.0, word))[1]

    def _tools_named_in(self, query: str) -> set[str]:
        """The tools called by name. Within a query only names of several words count, others may be mere words."""
        found = set(self._ids_by_name_key.get(name_key(query), ()))
        for token in query.split():
            named = self._ids_by_name_key.get(name_key(token))
            if named and len(terms(token)) > 1:
                found |= named
        return found

    def _rarity(self, posting: Collection[str]) -> float:
        return math.log(1 + (len(self._entries) - len(posting) + 0.5) / (len(posting) + 0.5))

    def _candidates(self, clauses: list[_Clause], limit: int, among: Set[str] | None) -> set[str]:
        """The tools worth a closer look, by BM25. Work is bounded: see `_SCANNED`."""
        wanted = _query_terms(clauses)
        known = [term for term in wanted if term in self._postings]
        known.sort(key=lambda term: (len(self._postings[term]), term))
        scores: _Scores = {}
        scanned = 0
        for place, term in enumerate(known):
            posting = self._postings[term]
            sought = posting if among is None else {tool_id: posting[tool_id] for tool_id in posting.keys() & among}
            scanned += len(sought)
            if place and scanned > _MAX_SCANNED_POSTINGS:
                scores = _top_scores(scores, _REFINED_FACTOR * limit)
                self._refine(scores, {frequent: wanted[frequent] for frequent in known[place:]})
                break
            factor = wanted[term] * self._rarity(posting)
            for tool_id, weight in sought.items():
                scores[tool_id] = scores.get(tool_id, 0.0) + factor * weight
        return set(_top_scores(scores, limit))

    def _refine(self, scores: _Scores, frequent: _Clause) -> None:
        """Counts frequent words in too; not their synonyms, which are more frequent still."""
        for term, wish in frequent.items():
            if not is_concept(term):
                posting = self._postings[term]
                factor = wish * self._rarity(posting)
                for tool_id in scores.keys() & posting.keys():
                    scores[tool_id] += factor * posting[tool_id]

    def _score_candidates(self, clauses: list[_Clause], pool: set[str]) -> _Scores:
        """The candidates' scores: by the whole query, and by the clause each fits best."""
        named = self._name_factors({word for clause in clauses for word in clause}, pool)
        matches = [self._match_clause(clause, pool) for clause in clauses]
        whole = _merge_matches(matches).weighted_scores(named)
        top = max(whole.values(), default=0.0) or 1.0
        scores = {tool_id: whole.get(tool_id, 0.0) / top for tool_id in pool}
        fit: _Scores = {}
        for match in matches:
            part = match.weighted_scores(named) if len(matches) > 1 else whole
            top = max(part.values(), default=0.0) or 1.0
            for tool_id, score in part.items():
                fit[tool_id] = max(score / top, fit.get(tool_id, 0.0))
        for tool_id, score in fit.items():
            scores[tool_id] += _CLAUSE_WEIGHT * score
        return scores

    def _match_clause(self, clause: _Clause, pool: set[str]) -> _Match:
        """How the candidates match a clause's words, and half as much their synonyms."""
        scores: _Scores = {}
        covered: _Scores = {}
        mass = 0.0
        for word, wish in clause.items():
            posting = self._postings.get(word, {})
            concepts = [self._postings[concept] for concept in CONCEPTS.get(word, ()) if concept in self._postings]
            if not posting and not concepts:
                continue
            rarity = self._rarity(posting) if posting else max(map(self._rarity, concepts))
            mass += rarity
            exact = posting.keys() & pool
            for tool_id in exact:
                scores[tool_id] = scores.get(tool_id, 0.0) + wish * rarity * posting[tool_id]
                covered[tool_id] = covered.get(tool_id, 0.0) + rarity
            akin: set[str] = set()
            for concept in concepts:
                factor = _SYNONYM_WEIGHT * wish * self._rarity(concept)
                near = concept.keys() & pool
                for tool_id in near:
                    scores[tool_id] = scores.get(tool_id, 0.0) + factor * concept[tool_id]
                akin |= near
            for tool_id in akin - exact:
                covered[tool_id] = covered.get(tool_id, 0.0) + _SYNONYM_COVERAGE * rarity
        return _Match(scores, covered, mass)

    def _name_factors(self, words: set[str], pool: set[str]) -> _Scores:
        """For each candidate the factor by which its name, as far as it is asked for, raises its score."""
        meant = {concept for word in words for concept in CONCEPTS.get(word, ())}
        shares: dict[str, tuple[float, float]] = {}
        factors: _Scores = {}
        for tool_id in pool:
            mass = asked = 0.0
            for word in self._entries[tool_id].name:
                share = shares.get(word)
                if share is None:
                    rarity = self._rarity(self._postings[word])
                    akin = _SYNONYM_COVERAGE * (not meant.isdisjoint(CONCEPTS.get(word, ())))
                    share = shares[word] = (rarity, rarity * (1.0 if word in words else akin))
                mass += share[0]
                asked += share[1]
            factors[tool_id] = 1 + _NAME_BONUS * asked / mass if mass else 1.0
        return factors


def _merge_matches(matches: list[_Match]) -> _Match:
    """The match of all clauses together."""
    if len(matches) == 1:
        return matches[0]
    scores: _Scores = {}
    covered: _Scores = {}
    for match in matches:
        for tool_id, score in match.scores.items():
            scores[tool_id] = scores.get(tool_id, 0.0) + score
            covered[tool_id] = covered.get(tool_id, 0.0) + match.covered_rarity[tool_id]
    return _Match(scores, covered, sum(match.total_rarity for match in matches))


def _query_terms(clauses: list[_Clause]) -> _Clause:
    """The terms of the whole query, and of each word what else it may be found by."""
    wanted: _Clause = {}
    for clause in clauses:
        for word, wish in clause.items():
            wanted[word] = wanted.get(word, 0.0) + wish
            for concept in CONCEPTS.get(word, ()):
                wanted[concept] = wanted.get(concept, 0.0) + _SYNONYM_WEIGHT * wish
    return wanted


def _top_scores(scores: _Scores, limit: int) -> _Scores:
    """So many of the highest scores; of equal ones those of the first ids."""
    if len(scores) <= limit:
        return scores
    least = sorted(scores.values(), reverse=True)[limit - 1]
    best = {tool_id: score for tool_id, score in scores.items() if score > least}
    equal = sorted(tool_id for tool_id, score in scores.items() if score == least)
    return best | dict.fromkeys(equal[: limit - len(best)], least)


def _discard(sets: dict[str, set[str]], place: str, value: str) -> None:
    members = sets[place]
    members.discard(value)
    if not members:
        del sets[place]

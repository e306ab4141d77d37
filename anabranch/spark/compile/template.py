"""The query of a step is analysed once. Later steps put their rows and functions into it.

Made with the DataFrame API, the query of a small topology takes 60 calls to the JVM, and Spark
analyses it after each of them. That is a tenth of a step's time. Most steps have the same query as
the step before, over other rows and with other arguments for slot tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.jvm import Expressions, analyzed, each_of, jlist, scala_of

_pickler: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]  # as Spark itself does
_LARGEST = 1 << 20  # the most bytes of functions in a query; Spark broadcasts larger ones


class Template:
    """A query that is a chain of operators over the rows of a batch. Its functions are those of
    `mapInArrow`.
    """

    def __init__(self, query: DataFrame, judging: str) -> None:
        self._session, self._jsession = query.sparkSession, query._jdf.sparkSession()
        self._scala = scala_of(self._session._jvm)
        chain = [analyzed(query)]
        while not chain[-1].children().isEmpty():
            chain.append(chain[-1].children().head())
        self._leaf, times, *self._nodes = reversed(chain)
        self._times = _Times(times, judging, self._session)
        self._functions = {
            i: _Function(each, self._session._jvm)
            for i, each in enumerate(self._nodes)
            if _calls_python(each)
        }
        self._output, placed = self._leaf.output(), self._leaf.outputPartitioning()
        self._placed, self._by = (
            placed,
            placed.expressions() if "HashPartitioning" in placed.getClass().getName() else None,
        )

    @classmethod
    def of(cls, query: DataFrame, rows: DataFrame, judging: str) -> Template | None:
        """A query over some rows as a template; None where it has other rows too, or Spark's
        internals have changed. First of all, `judging` is what it makes of event times.
        """
        try:
            made = cls(query, judging)
            given = analyzed(rows)
            chained = all(node.children().size() == 1 for node in made._nodes)
            same = (
                made._leaf.nodeName() == given.nodeName() == "LogicalRDD"
                and made._leaf.rdd().id() == given.rdd().id()
            )
        except (Py4JError, TypeError, ValueError):
            return None
        return made if chained and same else None

    def over(
        self, rows: DataFrame, judging: str, functions: Sequence[tuple[Callable[..., Any], Any]]
    ) -> DataFrame | None:
        """The query over other rows, which judges event times in another way, and with other
        functions, in the order in which they run, each with the schema of what it gives.

        Functions come in the order in which they run, each with the schema of its result. None if
        the functions must be broadcast, or if Spark's internals have changed.
        """
        context = self._session.sparkContext
        pickled = [_pickler.dumps(each) for each in functions]
        broadcast = context._pickled_broadcast_vars  # those that the functions refer to
        if list(broadcast) or sum(map(len, pickled)) > _LARGEST:
            broadcast.clear()
            return None
        try:
            return self._filled(rows, judging, iter(pickled))
        except (Py4JError, TypeError):
            return None

    def _filled(self, rows: DataFrame, judging: str, functions: Iterator[bytes]) -> DataFrame:
        scala = self._scala
        rdd = analyzed(rows).rdd()
        placed = (
            self._placed
            if self._by is None
            else scala.partitioning(self._by, rdd.getNumPartitions())
        )
        plan = self._times.over(scala.rows_of(rdd, self._output, placed, self._jsession), judging)
        for i, node in enumerate(self._nodes):
            plan = (
                self._functions[i].over(plan, next(functions))
                if i in self._functions
                else node.withNewChildren(scala.one(plan))
            )
        return DataFrame(scala.datasets.ofRows(self._jsession, plan), self._session)


class _Times:
    """The first operator of a query, which judges event times; the clock changes in every step."""

    def __init__(self, node: Any, judging: str, session: SparkSession) -> None:
        self._node, self._judging, self._context = node, judging, session.sparkContext
        self._columns = list(each_of(node.projectList()))
        self._at = [each.name() for each in self._columns].index("t")
        self._number = self._columns[self._at].exprId()
        self._expressions = Expressions(session)
        self._one = scala_of(session._jvm).one

    def over(self, plan: Any, judging: str) -> Any:
        """The operator over another plan; what it makes is known by the same numbers as before."""
        if judging != self._judging:
            named = self._expressions.parsed(judging, "t", self._number)
            self._columns[self._at] = named
            self._node = self._node.copy(jlist(self._context, self._columns), plan)
            self._judging = judging
            return self._node
        return self._node.withNewChildren(self._one(plan))


class _Function:
    """The parts of one `mapInArrow` in a query."""

    def __init__(self, node: Any, jvm: Any) -> None:
        call = node.functionExpr()
        function = call.func()
        self._node, self._output, self._rest = (
            node.copy,
            node.output(),
            (node.isBarrier(), node.profile()),
        )
        self._call, self._named, self._type = call.copy, call.name(), call.dataType()
        self._given = (call.children(), call.evalType(), call.udfDeterministic(), call.resultId())
        self._function = jvm.SimplePythonFunction
        self._where = (
            function.envVars(),
            function.pythonIncludes(),
            function.pythonExec(),
            function.pythonVer(),
        )
        self._beside = (function.broadcastVars(), function.accumulator())

    def over(self, plan: Any, pickled: bytes) -> Any:
        """The operator over another plan, with another function."""
        function = self._function(bytearray(pickled), *self._where, *self._beside)
        return self._node(
            self._call(self._named, function, self._type, *self._given),
            self._output,
            plan,
            *self._rest,
        )


def _calls_python(node: Any) -> bool:
    return bool(node.nodeName() == "MapInArrow")

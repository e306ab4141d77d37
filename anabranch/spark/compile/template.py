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
from pyspark.sql import DataFrame

from anabranch.spark.jvm import analyzed, scala_of

_pickler: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]  # as Spark itself does
_LARGEST = 1 << 20  # the most bytes of functions in a query; Spark broadcasts larger ones


class Template:
    """A query that is a chain of operators over the rows of a batch. Its functions are those of
    `mapInArrow`.
    """

    def __init__(self, query: DataFrame) -> None:
        self._session, self._jsession = query.sparkSession, query._jdf.sparkSession()
        self._scala = scala_of(self._session._jvm)
        chain = [analyzed(query)]
        while not chain[-1].children().isEmpty():
            chain.append(chain[-1].children().head())
        self._leaf, *self._nodes = reversed(chain)
        self._functions = {
            i: _Function(each, self._session._jvm)
            for i, each in enumerate(self._nodes)
            if _calls_python(each)
        }
        self._output, lies = self._leaf.output(), self._leaf.outputPartitioning()
        self._lies, self._by = (
            lies,
            lies.expressions() if "HashPartitioning" in lies.getClass().getName() else None,
        )

    @classmethod
    def of(cls, query: DataFrame, rows: DataFrame) -> Template | None:
        """The template of a query over some rows. None if the query reads other rows too, or if
        Spark's internals have changed.
        """
        try:
            made = cls(query)
            given = analyzed(rows)
            chained = all(node.children().size() == 1 for node in made._nodes)
            same = (
                made._leaf.nodeName() == given.nodeName() == "LogicalRDD"
                and made._leaf.rdd().id() == given.rdd().id()
            )
        except (Py4JError, TypeError):
            return None
        return made if chained and same else None

    def over(
        self, rows: DataFrame, functions: Sequence[tuple[Callable[..., Any], Any]]
    ) -> DataFrame | None:
        """The query over other rows and with other functions.

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
            return self._filled(rows, iter(pickled))
        except (Py4JError, TypeError):
            return None

    def _filled(self, rows: DataFrame, functions: Iterator[bytes]) -> DataFrame:
        scala = self._scala
        rdd = analyzed(rows).rdd()
        lies = (
            self._lies if self._by is None else scala.partitioning(self._by, rdd.getNumPartitions())
        )
        plan = scala.rows_of(rdd, self._output, lies, self._jsession)
        for i, node in enumerate(self._nodes):
            plan = (
                self._functions[i].over(plan, next(functions))
                if i in self._functions
                else node.withNewChildren(scala.one(plan))
            )
        return DataFrame(scala.datasets.ofRows(self._jsession, plan), self._session)


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

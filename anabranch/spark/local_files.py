"""How Spark writes the files of its own checkpoint on this machine: without a process for each.

Hadoop sets the permissions of a new local file with a `chmod` process, and Spark writes three files
per batch: 9 ms each. Spark accepts another class for its files. That class is a few lines of Java,
compiled by Janino, which is part of Spark. Where that fails, Spark's own class stays.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

_NAME = "anabranch.LocalFiles"
_JAVA = """
package anabranch;

public class LocalFiles extends %s {
    public LocalFiles(
            org.apache.hadoop.fs.Path path, org.apache.hadoop.conf.Configuration conf) {
        super(path, conf);
    }

    public org.apache.hadoop.fs.FSDataOutputStream createTempFile(
            org.apache.hadoop.fs.Path path) throws java.io.IOException {
        java.io.OutputStream file =
            new java.io.BufferedOutputStream(new java.io.FileOutputStream(path.toUri().getPath()));
        return new org.apache.hadoop.fs.FSDataOutputStream(file, null);
    }
}
"""


def local_files_class(session: SparkSession, spark_class: str) -> str:
    """The name of the class that writes local files; Spark's own where ours cannot be made."""
    return _compiled(session._jvm, spark_class)


@functools.lru_cache(maxsize=1)
def _compiled(jvm: Any, spark_class: str) -> str:
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(_JAVA % spark_class)
        code = compiler.getBytecodes().get(_NAME)
        with tempfile.TemporaryDirectory(prefix="anabranch-class-") as root:
            path = Path(root).joinpath(*_NAME.split(".")).with_suffix(".class")
            path.parent.mkdir()
            path.write_bytes(bytes(code))
            loader.addURL(jvm.java.io.File(root).toURI().toURL())
            loader.loadClass(_NAME)  # it stays; the file is not needed any more
    except (Py4JError, TypeError, OSError):
        return spark_class
    return _NAME

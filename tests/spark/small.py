"""Settings of a Spark session for tests: as small and as quick as it gets."""

from sparkjobs.session import LOGGING, UTC

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "512m",
    # The quick compiler only: no test runs long enough for the other one to pay.
    "spark.driver.extraJavaOptions": f"{UTC} {LOGGING} -XX:TieredStopAtLevel=1",
    # To compile a plan takes longer than to interpret it, where there are ten rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

"""Settings of a Spark session for tests: as small and as quick as it gets."""

from sparkjobs.session import LOGGING, ONE_TIER, UTC

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "512m",
    # No test runs long enough for the second compiler to pay.
    "spark.driver.extraJavaOptions": f"{UTC} {LOGGING} {ONE_TIER}",
    # To compile a plan takes longer than to interpret it, where there are ten rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

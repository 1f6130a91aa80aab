# Sourced by `run` and `ask`: fetches Kafka's jars once, compiles src/ when it changed.
# Needs a JDK (17 or newer) and Maven. Sets $classpath.
kafka_version=4.4.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ottla-compat
jars=$cache/kafka-$kafka_version
if [ ! -e "$jars/.complete" ]; then
  mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -Dkafka.version="$kafka_version" \
    -DoutputDirectory="$jars" -DincludeScope=runtime >&2
  touch "$jars/.complete"
fi
sum=$(cat "$here"/src/*.java | sha256sum | cut -c1-16)
classes=$cache/differential-$sum
if [ ! -d "$classes" ]; then
  building=$(mktemp -d "$cache/building.XXXXXX")
  javac -nowarn -proc:none -Xlint:-deprecation -Xlint:-unchecked -d "$building" -cp "$jars/*" "$here"/src/*.java 2>&1 | { grep -v "^Note: " >&2 || true; }
  mv -T "$building" "$classes" 2>/dev/null || rm -rf "$building"
fi
classpath="$classes:$jars/*"

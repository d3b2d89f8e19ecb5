// Delta tables as delta-kernel's Java reads them. Run as a source file:
//
//     java KernelReader.java JOBS
//
// JOBS is a JSON file: a list of {"path", "version" (or null), "rows" (whether they are asked for), "out"}. What is read
// of a table is written to `out` as JSON: its column names, its rows, and its live files as [path, id of the deletion
// vector or null, its cardinality].
// Where the reader refuses the table, `out` with `.error` behind has what it says. A cell is [kind, text]; null is null.
import static io.delta.kernel.internal.util.Utils.singletonCloseableIterator;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.delta.kernel.Scan;
import io.delta.kernel.Snapshot;
import io.delta.kernel.Table;
import io.delta.kernel.data.ColumnVector;
import io.delta.kernel.data.ColumnarBatch;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.types.*;
import io.delta.kernel.utils.CloseableIterator;
import io.delta.kernel.utils.FileStatus;
import java.io.File;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;

public class KernelReader {
    static final Engine ENGINE = DefaultEngine.create(new Configuration());
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        for (JsonNode job : JSON.readTree(new File(args[0]))) {
            File out = new File(job.get("out").asText());
            try {
                JSON.writeValue(out, read(job));
            } catch (Throwable error) {
                Files.writeString(new File(out + ".error").toPath(), error.toString());
            }
        }
    }

    static Map<String, Object> read(JsonNode job) throws Exception {
        JsonNode version = job.get("version");
        Table table = Table.forPath(ENGINE, job.get("path").asText());
        Snapshot snapshot = version.isNull()
            ? table.getLatestSnapshot(ENGINE) : table.getSnapshotAsOfVersion(ENGINE, version.asLong());
        Scan scan = snapshot.getScanBuilder().build();
        Row state = scan.getScanState(ENGINE);
        List<Object> rows = new ArrayList<>(), files = new ArrayList<>();
        try (CloseableIterator<FilteredColumnarBatch> found = scan.getScanFiles(ENGINE)) {
            while (found.hasNext()) {
                try (CloseableIterator<Row> each = found.next().getRows()) {
                    while (each.hasNext()) {
                        Row file = each.next();
                        FileStatus status = InternalScanFileUtils.getAddFileStatus(file);
                        var vector = InternalScanFileUtils.getDeletionVectorDescriptorFromRow(file);
                        files.add(Arrays.asList(status.getPath(),
                            vector == null ? null : vector.getUniqueId(), vector == null ? 0 : vector.getCardinality()));
                        if (job.get("rows").asBoolean()) {
                            read(snapshot.getSchema(), state, file, status, rows);
                        }
                    }
                }
            }
        }
        return Map.of("columns", snapshot.getSchema().fieldNames(), "rows", rows, "files", files);
    }

    // A struct's vector has the names that its fields have in files: their own are those of the table's schema.
    static void read(StructType schema, Row state, Row file, FileStatus status, List<Object> rows) throws Exception {
        CloseableIterator<ColumnarBatch> physical = ENGINE.getParquetHandler()
            .readParquetFiles(singletonCloseableIterator(status), ScanStateRow.getPhysicalDataReadSchema(state),
                Optional.empty())
            .map(result -> result.getData());
        try (var batches = Scan.transformPhysicalData(ENGINE, state, file, physical)) {
            while (batches.hasNext()) {
                FilteredColumnarBatch batch = batches.next();
                ColumnarBatch data = batch.getData();
                for (int at = 0; at < data.getSize(); at++) {
                    Optional<ColumnVector> chosen = batch.getSelectionVector();
                    if (chosen.isPresent() && (chosen.get().isNullAt(at) || !chosen.get().getBoolean(at))) {
                        continue;
                    }
                    List<Object> row = new ArrayList<>();
                    for (int column = 0; column < data.getSchema().length(); column++) {
                        row.add(cell(schema.at(column).getDataType(), data.getColumnVector(column), at));
                    }
                    rows.add(row);
                }
            }
        }
    }

    static Object cell(DataType type, ColumnVector from, int at) {
        if (from.isNullAt(at)) {
            return null;
        }
        if (type instanceof BooleanType) return told("boolean", from.getBoolean(at));
        if (type instanceof ByteType) return told("int", from.getByte(at));
        if (type instanceof ShortType) return told("int", from.getShort(at));
        if (type instanceof IntegerType) return told("int", from.getInt(at));
        if (type instanceof LongType) return told("int", from.getLong(at));
        if (type instanceof FloatType) return told("float", (double) from.getFloat(at));
        if (type instanceof DoubleType) return told("float", from.getDouble(at));
        if (type instanceof DecimalType) return told("decimal", from.getDecimal(at).toPlainString());
        if (type instanceof StringType) return told("text", from.getString(at));
        if (type instanceof BinaryType) return told("binary", Base64.getEncoder().encodeToString(from.getBinary(at)));
        if (type instanceof DateType) return told("date", from.getInt(at));
        if (type instanceof TimestampType) return told("timestamp", from.getLong(at));
        if (type instanceof TimestampNTZType) return told("local", from.getLong(at));
        if (type instanceof ArrayType) {
            return told("list", cells(((ArrayType) type).getElementType(), from.getArray(at).getElements()));
        }
        if (type instanceof MapType) {
            MapType map = (MapType) type;
            List<Object> pairs = new ArrayList<>(), values = cells(map.getValueType(), from.getMap(at).getValues());
            for (Object key : cells(map.getKeyType(), from.getMap(at).getKeys())) {
                pairs.add(Arrays.asList(key, values.get(pairs.size())));
            }
            return told("map", pairs);
        }
        if (type instanceof StructType) {
            List<Object> fields = new ArrayList<>();
            for (StructField field : ((StructType) type).fields()) {
                Object value = cell(field.getDataType(), from.getChild(fields.size()), at);
                fields.add(Arrays.asList(field.getName(), value));
            }
            return told("struct", fields);
        }
        throw new IllegalArgumentException("a column of type " + type);
    }

    static List<Object> cells(DataType type, ColumnVector from) {
        List<Object> found = new ArrayList<>();
        for (int at = 0; at < from.getSize(); at++) {
            found.add(cell(type, from, at));
        }
        return found;
    }

    static Object told(String kind, Object value) {
        return Arrays.asList(kind, value instanceof List ? value : value.toString());
    }
}

import io.fabric8.kubernetes.client.server.mock.KubernetesCrudDispatcher;
import io.fabric8.kubernetes.client.server.mock.KubernetesMockServer;
import io.fabric8.mockwebserver.Context;
import io.fabric8.mockwebserver.MockWebServer;
import io.fabric8.mockwebserver.http.Buffer;
import io.fabric8.mockwebserver.http.MockResponse;
import io.fabric8.mockwebserver.http.RecordedRequest;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;

/** Kubernetes' API server in memory, on a port of the loopback. It logs each request. */
public class KubernetesServer {
    public static void main(String[] args) throws Exception {
        var server =
                new KubernetesMockServer(new Context(), new MockWebServer(), new HashMap<>(), new Objects(), false);
        server.init(InetAddress.getLoopbackAddress(), Integer.parseInt(args[0]));
        Thread.sleep(Long.MAX_VALUE);
    }

    /** A new pod has the status that a real server gives it: Spark's driver knows no pod without one. */
    private static class Objects extends KubernetesCrudDispatcher {
        @Override
        public MockResponse handleCreate(RecordedRequest asked) {
            if (!asked.getPath().endsWith("/pods")) {
                return super.handleCreate(asked);
            }
            var pod = "{\"status\":{\"phase\":\"Pending\"}," + asked.getUtf8Body().strip().substring(1);
            var body = new Buffer(pod.getBytes(StandardCharsets.UTF_8));
            return super.handleCreate(
                    new RecordedRequest(
                            asked.getHttpVersion(), asked.method(), asked.getPath(), asked.getHeaders(), body));
        }
    }
}

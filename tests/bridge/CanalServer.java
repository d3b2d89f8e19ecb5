// canal's own server, as `canal.deployer` would start it, but from the jars of Maven alone: the deployer is none.
// Arguments: port, port of the database, folder for positions, destination. Run as a source file; prints "ready".
import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.protocol.SecurityUtil;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.alibaba.otter.canal.server.netty.CanalServerWithNetty;
import java.net.InetSocketAddress;
import java.util.List;

public class CanalServer {

    public static void main(String[] args) throws Exception {
        String destination = args[3];
        CanalServerWithEmbedded embedded = CanalServerWithEmbedded.instance();
        embedded.setUser("canal");
        embedded.setPasswd(SecurityUtil.scrambleGenPass("a secret".getBytes()));
        embedded.setCanalInstanceGenerator(
            name -> new CanalInstanceWithManager(instance(name, Integer.parseInt(args[1]), args[2]), ".*\\..*"));
        embedded.start();
        embedded.start(destination);
        CanalServerWithNetty netty = CanalServerWithNetty.instance();
        netty.setIp("127.0.0.1");
        netty.setPort(Integer.parseInt(args[0]));
        netty.start();
        System.out.println("ready");
        Thread.currentThread().join();
    }

    private static Canal instance(String destination, int database, String folder) {
        CanalParameter parameter = new CanalParameter();
        parameter.setMetaMode(CanalParameter.MetaMode.LOCAL_FILE); // positions outlive a restart, as by default
        parameter.setDataDir(folder);
        parameter.setMetaFileFlushPeriod(100);
        parameter.setHaMode(CanalParameter.HAMode.HEARTBEAT);
        parameter.setIndexMode(CanalParameter.IndexMode.MEMORY_META_FAILBACK);
        parameter.setStorageMode(CanalParameter.StorageMode.MEMORY);
        parameter.setMemoryStorageBufferSize(16384);
        parameter.setSourcingType(CanalParameter.SourcingType.MYSQL);
        parameter.setDbAddresses(List.of(new InetSocketAddress("127.0.0.1", database)));
        parameter.setDbUsername("canal");
        parameter.setDbPassword("canal");
        parameter.setSlaveId(1234L);
        parameter.setDefaultConnectionTimeoutInSeconds(30);
        parameter.setConnectionCharset("UTF-8");
        parameter.setReceiveBufferSize(16384);
        parameter.setSendBufferSize(16384);
        parameter.setDetectingEnable(false);
        parameter.setTsdbEnable(false);
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName(destination);
        canal.setCanalParameter(parameter);
        return canal;
    }
}

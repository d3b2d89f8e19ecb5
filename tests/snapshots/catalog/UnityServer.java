import io.unitycatalog.server.UnityCatalogServer;

/** The open Unity Catalog server without the part that listens beyond this machine. Argument: its port. */
public class UnityServer {
  public static void main(String[] args) {
    UnityCatalogServer.builder().port(Integer.parseInt(args[0])).build().start();
    System.out.println("ready");
  }
}

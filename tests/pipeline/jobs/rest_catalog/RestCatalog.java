import java.util.Map;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.http.UriCompliance;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** A REST catalog of Iceberg on loopback, over a database: serves until it is killed, and prints its port. */
public final class RestCatalog {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = Map.of(
                "type", "jdbc", "uri", "jdbc:sqlite:" + arguments[0], "warehouse", arguments[1]);
        var catalog = CatalogUtil.buildIcebergCatalog("rest", properties, new org.apache.hadoop.conf.Configuration());
        Server server = new Server();
        // Names of several parts have a control character between them, which Jetty refuses unless it is told.
        HttpConfiguration configuration = new HttpConfiguration();
        configuration.setUriCompliance(UriCompliance.UNSAFE);
        ServerConnector connector = new ServerConnector(server, new HttpConnectionFactory(configuration));
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        context.getServletHandler().setDecodeAmbiguousURIs(true);
        server.setHandler(context);
        server.start();
        System.out.println(connector.getLocalPort());
        server.join();
    }
}

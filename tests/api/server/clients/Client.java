// Posts files by the JDK's own client, each once with a length and once as a stream, and prints the
// statuses. Arguments: URL, key, content encoding ("-": none) and file of each request.
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;

class Client {
    public static void main(String[] words) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (int at = 0; at < words.length; at += 4) {
            byte[] body = Files.readAllBytes(Path.of(words[at + 3]));
            BodyPublisher[] forms = {
                BodyPublishers.ofByteArray(body),
                BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body)),
            };
            for (BodyPublisher form : forms) {
                HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(words[at]))
                    .header("Content-Type", "application/json")
                    .header("X-Service-Project-Key", words[at + 1])
                    .POST(form);
                if (!words[at + 2].equals("-")) {
                    request.header("Content-Encoding", words[at + 2]);
                }
                System.out.println(client.send(request.build(), BodyHandlers.ofString()).statusCode());
            }
        }
    }
}

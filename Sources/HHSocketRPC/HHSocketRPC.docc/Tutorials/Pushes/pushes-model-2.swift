import HHSocketRPC
import Observation

@MainActor @Observable
final class NewsModel {
    private(set) var headlines: [String] = []
    private let client: SocketClient

    init(client: SocketClient) {
        self.client = client
    }

    /// Keeps the headlines current, until its task is cancelled.
    func follow() async {
        for await push in self.client.pushes(ofType: 2001) {
            self.headlines.insert(push.string, at: 0)
        }
    }
}

import HHSocketRPC
import Observation

@MainActor @Observable
final class NewsModel {
    private(set) var headlines: [String] = []
    private(set) var isOnline = false
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

    /// Keeps `isOnline` current, until its task is cancelled.
    func watchConnection() async {
        for await event in self.client.events {
            switch event {
            case .connected, .switched: self.isOnline = true
            case .disconnected, .gaveUp, .closed: self.isOnline = false
            default: break
            }
        }
    }
}

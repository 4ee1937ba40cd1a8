import HHSocketRPC
import Observation

@MainActor @Observable
final class NewsModel {
    private(set) var headlines: [String] = []
    private let client: SocketClient

    init(client: SocketClient) {
        self.client = client
    }
}

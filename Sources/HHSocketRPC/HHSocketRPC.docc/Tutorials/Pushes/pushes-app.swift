import HHSocketRPC
import SwiftUI

@main
struct NewsApp: App {
    @Environment(\.scenePhase) private var scenePhase
    private let client: SocketClient
    private let model: NewsModel

    init() {
        self.client = SocketClient(configuration: .init(servers: [Endpoint(host: "news.example.com", port: 7000)]))
        self.model = NewsModel(client: self.client)
        self.client.connect()
    }

    var body: some Scene {
        WindowGroup { NewsView(model: self.model) }
            .onChange(of: self.scenePhase) { _, phase in
                switch phase {
                case .background: self.client.applicationDidEnterBackground()
                case .active: self.client.applicationWillEnterForeground()
                default: break
                }
            }
    }
}

import HHSocketRPC

struct Greeter {
    let client: SocketClient
    var timeout = Duration.seconds(3)

    func greeting(for name: String) async -> String {
        let request = SocketRequest(type: 101, body: ByteBuffer(string: name), timeout: self.timeout)
        do throws(SocketError) {
            return try await self.client.data(for: request).string
        } catch {
            return error.code == .noPermission ? "you are not to be greeted" : "no greeting today"
        }
    }
}

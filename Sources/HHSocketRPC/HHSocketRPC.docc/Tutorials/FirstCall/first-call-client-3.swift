import HHSocketRPC

let client = SocketClient(configuration: .init(servers: [Endpoint(host: "127.0.0.1", port: 7000)]))
client.connect()

let request = SocketRequest(type: 101, body: "Ann", timeout: .seconds(3))
do throws(SocketError) {
    print(try await client.data(for: request).string)
} catch {
    print("no answer: \(error)")
    if error.notExecuted { print("The server has not run the request.") }
}
await client.close()

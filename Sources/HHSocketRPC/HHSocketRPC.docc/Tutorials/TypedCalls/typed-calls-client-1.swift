import HHSocketRPC

let client = SocketClient(configuration: .init(servers: [Endpoint(host: "127.0.0.1", port: 7000)]))
client.connect()

let greeter = Greeter_Greeter.Client(client)
print(try await greeter.greet(.with { $0.name = "Ann" }).text)

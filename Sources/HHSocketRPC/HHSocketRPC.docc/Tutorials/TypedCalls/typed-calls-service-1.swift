import HHSocketServer

struct GreeterService: Greeter_Greeter.ServiceProtocol {
    func greet(_ request: Greeter_Person, context: ServerContext) async throws -> Greeter_Greeting {
        guard !request.name.isEmpty else { throw StatusError(.illegalFormat) }
        return .with { $0.text = "hello, \(request.name)" }
    }
}

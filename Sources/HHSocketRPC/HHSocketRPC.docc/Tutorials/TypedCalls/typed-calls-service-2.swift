import HHSocketServer

struct GreeterService: Greeter_Greeter.ServiceProtocol {
    func greet(_ request: Greeter_Person, context: ServerContext) async throws -> Greeter_Greeting {
        guard !request.name.isEmpty else { throw StatusError(.illegalFormat) }
        let visit = Greeter_Visit.with { $0.name = request.name }
        try await context.session.push(visit)
        return .with { $0.text = "hello, \(request.name)" }
    }
}

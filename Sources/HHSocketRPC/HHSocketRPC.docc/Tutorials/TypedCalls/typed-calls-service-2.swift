import HHSocketServer

struct GreeterService: Greeter_Greeter.ServiceProtocol {
    func greet(_ request: Greeter_Person, context: ServerContext) async throws -> Greeter_Greeting {
        guard !request.name.isEmpty else { throw StatusError(.illegalFormat) }
        let visit = Greeter_Visit.with { $0.name = request.name }
        await context.session.push(type: Greeter_Visit.pushType, body: try ByteBuffer(message: visit))
        return .with { $0.text = "hello, \(request.name)" }
    }
}

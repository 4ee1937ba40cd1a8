// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC
import NIOCore

/// Calls with streams.
extension CallCommand {
    /// The first option with the request that is given.
    var givenBody: String? {
        let options: [(value: String?, name: String)] = [
            (self.body, "--body"), (self.bodyFile, "--body-file"), (self.method.jsonBody, "--json-body"),
            (self.method.jsonBodyFile, "--json-body-file"),
        ]
        return options.first { $0.value != nil }?.name
    }

    /// The kind of stream that the flags request; nil if none. With `--items` alone the server's items are printed,
    /// too.
    var flaggedKind: StreamKind? {
        if self.items { return .bidirectional }
        return self.stream ? .serverStreaming : nil
    }

    /// Returns the kind of the method's stream, or the kind that the flags request; nil for a call without one.
    func streamKind(_ method: ProtoMethod?) throws -> StreamKind? {
        guard let method else { return self.flaggedKind }
        guard !self.items || method.requestIsStream, !self.stream || method.responseIsStream else {
            let (flag, what) = self.items && !method.requestIsStream ? ("--items", "requests") : ("--stream", "answers")
            throw ValidationError("\(flag): \(method.name) does not stream its \(what), says the .proto.")
        }
        guard method.requestIsStream || method.responseIsStream else { return nil }
        if method.requestIsStream, let body = self.givenBody {
            throw ValidationError("\(body): \(method.name) streams its requests, which are lines of stdin.")
        }
        let kind = StreamKind(clientStreams: method.requestIsStream, serverStreams: method.responseIsStream)
        try self.validateStream(kind)
        return kind
    }

    /// Checks the options that exclude streams, or that streams exclude.
    func validateStream(_ kind: StreamKind?) throws {
        try self.hello.validate(in: self.format, streams: kind != nil)
        guard kind != nil else { return }
        let options = [
            (self.count != nil, "--repeat"), (self.inFlight != nil, "--in-flight"), (self.retries != nil, "--retries"),
            (self.hello.idempotencyKey != nil, "--idempotency-key"),
        ]
        if let (_, name) = options.first(where: \.0) {
            throw ValidationError("\(name) is for calls without streams; leave it out.")
        }
    }

    /// Makes a call with a stream.
    func run(
        _ kind: StreamKind,
        _ request: SocketRequest,
        of selected: (method: ProtoMethod, codec: PayloadJSON)?,
        with client: SocketClient,
        until signals: Signals,
        to printer: inout AnswerPrinter
    ) async throws -> ExitCode {
        var request = request
        request.timeout = self.timeout
        if let deadline = self.hello.deadline { request.deadline = .now() + TimeAmount(deadline) }
        let input = ItemInput(selected.map { (name: $0.method.request, codec: $0.codec) })
        let call = StreamedCall(client: client, request: request, kind: kind, input: kind.clientStreams ? input : nil)
        let interruption = Self.interruption(signals) { call.cancel() }
        defer { interruption.cancel() }
        let outcome = try await call.run { (item) throws(StandardOutput.Failure) in try printer.print(item) }
        if let failure = call.inputFailure {
            StandardError.line("error: \(failure.message.inOneLine)")
            return failure.exitCode
        }
        // If the server streams, the end carries no message. An empty message has no line either.
        if kind.serverStreams || !self.json && outcome.hasEmptyAnswer { printer.message = nil }
        var silence = SilenceHint(self.format)
        silence.note(outcome)
        try printer.print(outcome)
        if let hint = silence.text { StandardError.line(hint) }
        guard case .success = outcome.result else { return .failure }
        return .success
    }
}

extension MeasuredOutcome {
    /// Whether it is an answer with status 200 and nothing in it.
    fileprivate var hasEmptyAnswer: Bool {
        if case .success(let response) = self.result { response.body.readableBytes == 0 } else { false }
    }
}

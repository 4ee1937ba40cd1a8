// SPDX-License-Identifier: Apache-2.0
import Foundation
import Testing

/// The exact code that is generated for methods with streams.
@Suite struct StreamTests {
    private func declaration(_ beginning: String, _ options: String = "") throws -> String {
        let text = try Generating.text("everything.proto", options)
        // Only the service's part of the file, since declarations of other services have equal names.
        let parts = text.components(separatedBy: "/// Methods whose names generated code or Swift uses.")
        return try Generating.declaration(beginning, in: #require(parts.first))
    }

    /// The function of a declaration that begins with `beginning`, with its comment.
    private func function(_ beginning: String, in declaration: String) throws -> String {
        try #require(
            declaration.components(separatedBy: "\n\n").first { $0.contains(beginning) },
            "there is no \(beginning) in:\n\(declaration)"
        )
    }

    @Test func `A client's function for a stream of answers takes the request and returns the stream`() throws {
        let client = try self.declaration("struct Client: ")
        #expect(
            try self.function("func watch(", in: client) == #"""
                    nonisolated(nonsending) func watch(
                        _ request: Every_Thing_Scalars,
                        options: HHSocketRPC.CallOptions
                    ) async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News> {
                        try await self.client.serverStream(Methods.watch, request, options: options)
                    }
                """#
        )
    }

    @Test func `A client's function for a stream of requests takes no request`() throws {
        let client = try self.declaration("struct Client: ")
        #expect(
            try self.function("func upload(", in: client) == #"""
                    nonisolated(nonsending) func upload(
                        options: HHSocketRPC.CallOptions
                    ) async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News> {
                        try await self.client.clientStream(Methods.upload, options: options)
                    }
                """#
        )
        #expect(
            try self.function("func talk(", in: client) == #"""
                    nonisolated(nonsending) func talk(
                        options: HHSocketRPC.CallOptions
                    ) async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News> {
                        try await self.client.bidirectionalStream(Methods.talk, options: options)
                    }
                """#
        )
    }

    @Test func `The client protocol has every shape, with the comments of the proto`() throws {
        let methods = try self.declaration("protocol ClientProtocol")
        #expect(
            try self.function("func watch(", in: methods) == #"""
                    /// Answers with a stream.
                    nonisolated(nonsending) func watch(
                        _ request: Every_Thing_Scalars,
                        options: HHSocketRPC.CallOptions
                    ) async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News>
                """#
        )
        #expect(
            try self.function("func upload(", in: methods) == #"""
                    /// Counts the messages that it receives.
                    nonisolated(nonsending) func upload(
                        options: HHSocketRPC.CallOptions
                    ) async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News>
                """#
        )
        #expect(
            try self.function("func talk(", in: methods) == #"""
                    nonisolated(nonsending) func talk(
                        options: HHSocketRPC.CallOptions
                    ) async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News>
                """#
        )
    }

    @Test func `Options may be omitted, and a closure may send the requests`() throws {
        let defaults = try self.declaration("extension Every_Thing_Everything.ClientProtocol")
        #expect(
            try self.function("self.watch(", in: defaults) == #"""
                    /// Answers with a stream.
                    nonisolated(nonsending) func watch(
                        _ request: Every_Thing_Scalars
                    ) async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News> {
                        try await self.watch(request, options: .init())
                    }
                """#
        )
        #expect(
            try self.function("self.upload(options: .init())", in: defaults) == #"""
                    /// Counts the messages that it receives.
                    nonisolated(nonsending) func upload() async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News> {
                        try await self.upload(options: .init())
                    }
                """#
        )
        #expect(
            try self.function("answer(to: produce)", in: defaults) == #"""
                    /// Counts the messages that it receives.
                    ///
                    /// - Parameter produce: Sends the requests. The stream is finished when it returns, and cancelled if it throws.
                    nonisolated(nonsending) func upload(
                        options: HHSocketRPC.CallOptions = .init(),
                        _ produce: nonisolated(nonsending) (HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News>) async throws -> Swift.Void
                    ) async throws -> Every_Thing_News {
                        try await self.upload(options: options).answer(to: produce)
                    }
                """#
        )
        #expect(
            try self.function("func talk(", in: defaults) == #"""
                    nonisolated(nonsending) func talk() async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News> {
                        try await self.talk(options: .init())
                    }
                """#
        )
        #expect(defaults.components(separatedBy: "_ produce:").count == 2)
    }

    @Test func `A mock's handlers create the streams`() throws {
        let mock = try self.declaration("struct MockClient: ")
        let stream = "HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News>"
        for (name, handler, wrapper) in [
            ("onWatch", "(Every_Thing_Scalars)", "MockHandler"),
            ("onUpload", "()", "MockStreamHandler"),
            ("onTalk", "()", "MockStreamHandler"),
        ] {
            let declaration = """
                    @HHSocketRPC.\(wrapper)(of: "Every_Thing_Everything.MockClient", named: "\(name)")
                    var \(name): (@Sendable \(handler) async throws -> \(stream))?

                """
            #expect(mock.contains(declaration), "\(name)")
        }
        #expect(
            try self.function("func talk(", in: mock) == #"""
                    nonisolated(nonsending) func talk(
                        options: HHSocketRPC.CallOptions
                    ) async throws(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News> {
                        try await self._onTalk.open(options: options, clock: self.clock)
                    }
                """#
        )
        #expect(
            try self.function("func onTalk(", in: mock) == #"""
                    /// Sets a handler of `talk` that is given the call's options too.
                    mutating func onTalk(
                        _ handler: @escaping @Sendable (HHSocketRPC.CallOptions) async throws -> HHSocketRPC.MessageStream<Every_Thing_Scalars, Every_Thing_News>
                    ) {
                        self._onTalk.set(handler)
                    }
                """#
        )
        #expect(mock.contains("self._onWatch.open(request, options: options, clock: self.clock)"))
    }

    @Test func `A server implements and registers each kind of method`() throws {
        let service = try self.declaration("protocol ServiceProtocol")
        #expect(
            try self.function("func watch(", in: service) == #"""
                    /// Answers with a stream.
                    func watch(
                        _ request: Every_Thing_Scalars,
                        to responses: HHSocketServer.MessageWriter<Every_Thing_News>,
                        context: HHSocketServer.ServerContext
                    ) async throws
                """#
        )
        #expect(
            try self.function("func upload(", in: service) == #"""
                    /// Counts the messages that it receives.
                    func upload(
                        _ requests: HHSocketServer.RequestMessages<Every_Thing_Scalars>,
                        context: HHSocketServer.ServerContext
                    ) async throws -> Every_Thing_News
                """#
        )
        #expect(
            try self.function("func talk(", in: service) == #"""
                    func talk(
                        _ requests: HHSocketServer.RequestMessages<Every_Thing_Scalars>,
                        to responses: HHSocketServer.MessageWriter<Every_Thing_News>,
                        context: HHSocketServer.ServerContext
                    ) async throws
                """#
        )
        let registration = try self.declaration("extension HHSocketServer.Router")
        #expect(
            registration.contains(
                #"""
                        self.handleServerStream(Every_Thing_Everything.Methods.watch, on: executor) { request, responses, context in
                            try await service.watch(request, to: responses, context: context)
                        }
                        self.handleClientStream(Every_Thing_Everything.Methods.upload, on: executor) { requests, context in
                            try await service.upload(requests, context: context)
                        }
                        self.handleBidirectionalStream(Every_Thing_Everything.Methods.talk, on: executor) { requests, responses, context in
                            try await service.talk(requests, to: responses, context: context)
                        }
                """#
            )
        )
    }

    @Test func `Streams have the access level of the other declarations`() throws {
        for (visibility, access) in [("Public", "public "), ("Package", "package ")] {
            let defaults = try self.declaration(
                "extension Every_Thing_Everything.ClientProtocol",
                "Visibility=\(visibility)"
            )
            // Seven methods, of which one also has a form with a closure, and the pushes.
            #expect(defaults.components(separatedBy: "\n    \(access)").count == 10)
            let mock = try self.declaration("\(access)struct MockClient: ", "Visibility=\(visibility)")
            #expect(mock.contains("\n    \(access)var onTalk: "))
        }
    }

    @Test func `With the messages of swift-protobuf, streams do not differ`() throws {
        let own = try Generating.text("everything.proto")
        // Except for the module of the well-known types.
        let theirs = try Generating.text("everything.proto", "Messages=SwiftProtobuf")
            .replacingOccurrences(of: "SwiftProtobuf.Google_", with: "HHSocketMessage.Google_")
        for beginning in [
            "struct Client: ", "protocol ClientProtocol", "struct MockClient: ", "protocol ServiceProtocol",
        ] {
            #expect(
                try Generating.declaration(beginning, in: own) == Generating.declaration(beginning, in: theirs)
            )
        }
    }

    @Test func `Methods with the names of a stream's methods keep their names`() throws {
        let text = try Generating.text("everything.proto")
        for line in [
            "        nonisolated(nonsending) func finish(",
            "    nonisolated(nonsending) func onSend() async throws"
                + "(HHSocketRPC.SocketError) -> HHSocketRPC.MessageStream<Every_Thing_Nothing, Every_Thing_Nothing> {",
            "        var onOnSend: (@Sendable () async throws -> HHSocketRPC.MessageStream<Every_Thing_Nothing, "
                + "Every_Thing_Nothing>)?", "        try await self.repeat(options: options).answer(to: produce)",
            "        nonisolated(nonsending) func `repeat`(",
        ] {
            #expect(text.contains("\(line)\n"), "\(line)")
        }
        #expect(!text.contains("unavailable"))
    }
}

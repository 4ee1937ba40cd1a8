// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketServer
import TestSupport
import Testing

/// An app that imports HHSocketRPC alone: `Tests/CallsApp`.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CallsAppTests {
    private static let app = Command.executable("calls-app")

    @Test func itCallsAServer() async throws {
        try await EchoServer.with { address, _ in
            let outcome = try await Command.run(["\(address.port)"], of: Self.app)
            #expect(outcome.exitCode == 0)
            #expect(outcome.lines == ["Ann"])
        }
    }

    /// Returns the modules of the package whose object files the linker was given, and those of SwiftNIO.
    private func linkedModules() throws -> Set<String> {
        let list = Self.app.deletingLastPathComponent().appendingPathComponent("calls-app.product/Objects.LinkFileList")
        let objects = try String(contentsOf: list, encoding: .utf8)
        return Set(objects.matches(of: #/([A-Za-z0-9_]+)\.build//#).map { String($0.output.1) })
            .filter { $0.contains("HHSocket") || $0.contains("NIO") || $0 == "CNetlink" }
    }

    @Test func itLinksTheConnectionAndTheCallsAlone() throws {
        let linked = try self.linkedModules()
        let ours = linked.filter { !$0.contains("NIO") }
        let ground: Set = ["CHHSocket", "HHSocketFoundation", "HHSocketMessage", "HHSocketSystem"]
        #expect(ours.subtracting(["CNetlink"]) == ground.union(["HHSocketLink", "HHSocket", "HHSocketRPC"]))
        #expect(linked.isSuperset(of: ["NIOCore", "NIOPosix", "NIOSSL"]))
        #expect(!linked.contains("NIOHTTP1"))
    }
}

// SPDX-License-Identifier: Apache-2.0
import ChatModel
import Foundation
import HHSocketRPC
import Testing

/// The table of errors in `Docs/Apps.md`: the codes of each reaction.
@Suite struct AdviceTests {
    /// The rows of the table, each with its reaction and its codes.
    private func rows() throws -> [(advice: String, codes: [String])] {
        let root = (0..<5).reduce(URL(fileURLWithPath: #filePath)) { url, _ in url.deletingLastPathComponent() }
        let page = try String(contentsOf: root.appendingPathComponent("Docs/Apps.md"), encoding: .utf8)
        let section = try #require(page.components(separatedBy: "\n## ").first { $0.hasPrefix("Errors\n") })
        return section.split(separator: "\n").filter { $0.hasPrefix("| `.") }.map { row in
            let cells = row.split(separator: "|").map { cell in
                cell.matches(of: /`\.?([a-zA-Z]+)[^`]*`/).map { String($0.output.1) }
            }
            return (cells[0].first ?? "", cells[1])
        }
    }

    @Test func everyCodeHasTheReactionOfItsRow() throws {
        let codes: [SocketError.Code] = [
            .serverLostConnection, .illegalLength, .lostPacket, .illegalFormat, .notModified, .undefinedType,
            .protobufFailed, .database, .unknown, .noPermission, .deadlineExceeded, .cancelledByServer, .emptyProtobuf,
            .overloaded, .draining, .notConnected, .timeout, .networkUnreachable, .cancelled, .connectionLost,
            .connectionRefused, .connectTimeout, .hostNotFound, .proxyFailed, .tlsFailed, .connectFailed,
            .handshakeRefused, .handshakeTimeout, .noServerReachable, .checksumMismatch, .frameTooLarge,
            .protocolViolation, .brokerError, .tooManyInFlight, .queueFull, .invalidArgument, .interceptorFailed,
            .featureNotAgreed, .bindFailed, .decodingFailed, .noData, .noMoreData,
        ]
        let rows = try self.rows()
        #expect(rows.count == 6)
        let listed = rows.flatMap(\.codes)
        #expect(listed.sorted() == (codes.map(\.description) + ["server"]).sorted())
        for row in rows {
            for code in codes where row.codes.contains(code.description) {
                #expect("\(Advice(SocketError(code, message: "")))" == row.advice, "\(code)")
            }
        }
        #expect(Advice(SocketError(.server(Status(rawValue: 700)), message: "")) == .report)
    }
}

// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTesting
import TestSupport
import Testing

/// The example of `Docs/Errors.md`, word for word, and its tables, which list every code.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ErrorsGuideTests {
    private let page: DocumentationPage

    init() throws {
        self.page = try DocumentationPage("Docs/Errors.md")
    }

    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try self.page.shortcomings() == [])
    }

    /// The cells of the rows of a section's tables.
    private func rows(_ section: String) throws -> [[String]] {
        try DocumentationPage("Docs/Errors.md", section: section).text.split(separator: "\n")
            .filter { $0.hasPrefix("| `") }
            .map { row in
                row.split(separator: "|").map { cell in
                    String(cell.drop { $0 == " " || $0 == "`" }.prefix { $0 != " " && $0 != "`" })
                }
            }
    }

    @Test func everyCodeHasARow() throws {
        let source = try DocumentationPage("Sources/HHSocketLink/SocketError.swift").text
        let names = source.matches(of: /public static let ([a-zA-Z]+) = Self\(\w+\./).map { String($0.output.1) }
        #expect(names.count > 30)
        let sections = ["Answers of the server", "Errors found by the client"]
        let listed = try sections.flatMap { try self.rows($0) }.compactMap(\.first)
        #expect(listed.sorted() == (names + ["server(_:)"]).sorted())
    }

    @Test func everyStatusIsTheCodes() throws {
        for row in try self.rows("Answers of the server") where row[0] != "server(_:)" {
            let number = try #require(UInt32(row[1]), "\(row)")
            #expect(SocketError.Code(Status(rawValue: number)).description == row[0])
        }
        for row in try self.rows("Errors found by the client") {
            let other = try self.rows("Answers of the server").map { $0[0] }
            #expect(!other.contains(row[0]))
        }
    }

    /// The statement of the page about HTTP's numbers.
    @Test func statusesAreNotThoseOfHTTP() {
        let codes = [404, 401, 403, 405].map { SocketError.Code(Status(rawValue: $0)) }
        #expect(codes == [.unknown, .undefinedType, .database, .noPermission])
    }

    @Test(arguments: [
        (MockServer.Reaction.answer("hello"), nil), (.status(.noPermission), SocketError.Code.noPermission),
        (.status(.overloaded), .overloaded), (.reset, .connectionLost),
    ])
    func errorsAreDistinguished(reaction: MockServer.Reaction, code: SocketError.Code?) async throws {
        let server = try await MockServer(reaction)
        let client = SocketClient.connecting(to: server.endpoint)
        let request = SocketRequest(type: 101)
        var found: SocketError?
        func logIn() async {}

        do {
            let response = try await client.data(for: request)
            print(response.string)
        } catch let error where error.code == .noPermission {
            await logIn()
        } catch let error where error.notExecuted {
            print("the server did not run it: \(error)")
        } catch {
            print("\(error.code) from \(error.endpoint?.description ?? "nowhere"): \(error.message)")
        }

        // Not by the same client, which may be waiting for its next attempt.
        let other = SocketClient.connecting(to: server.endpoint)
        do { _ = try await other.data(for: request) } catch { found = error }
        #expect(found?.code == code)
        await client.close()
        await other.close()
    }
}

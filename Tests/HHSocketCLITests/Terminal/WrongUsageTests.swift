// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

/// Wrong usage as users see it, one example of each kind. Other suites check the many cases in their own process.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WrongUsageTests {
    @Test(arguments: [
        // No command, an unknown one, and help.
        [], ["unknown"], ["--help"], ["call", "--help"], ["--version"],
        // A missing argument, one too many, and an unknown option.
        ["call"], ["serve", "more"], ["call", "h:1", "--typ", "100"], ["--typ"],
        // A value that cannot be parsed, one that is out of range, and options that exclude each other.
        ["serve", "--port", "x"], ["call", "127.0.0.1:1", "--type", "15"],
        ["call", "127.0.0.1:1", "--type", "100", "--body", "a", "--body-file", "b"],
        ["stomp", "send"],
        // A file that cannot be read.
        ["call", "127.0.0.1:1", "--type", "100", "--format", "/no/such/file"],
    ])
    func theProcessPrintsAndReturnsWhatItsParserSays(arguments: [String]) async throws {
        let (parsed, printed) = try await (WrongUsage(parsing: arguments), WrongUsage(of: arguments))
        #expect(parsed == printed)
    }
}

// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// `Examples/Weather`: the structures of a library in C as bodies.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct WeatherExampleTests {
    @Test func structuresCrossTheConnection() async throws {
        let example = try Command([], of: Command.executable("weather-example"))
        _ = try await example.outcome()
        let expected = packageFolder.appendingPathComponent("Examples/Weather/expected.txt")
        #expect(try example.output == String(contentsOf: expected, encoding: .utf8))
    }
}

// SPDX-License-Identifier: Apache-2.0

import Testing

/// The entry point of the tests on Linux.
///
/// Without this file, SwiftPM would look for tests of XCTest, of which there are none, in the compiler's index. The
/// Makefile builds without an index, which takes a tenth less time.
@main
enum TestRunner {
    static func main() async {
        // `swift test` also runs the program without naming a library, for XCTest.
        let names = CommandLine.arguments.drop { $0 != "--testing-library" }.dropFirst()
        guard names.first == "swift-testing" else { return }
        await Testing.__swiftPMEntryPoint() as Never
    }
}

// SPDX-License-Identifier: Apache-2.0
#if canImport(SwiftUI)
import ChatViews
import SwiftUI

@main struct ChatApp: App {
    var body: some Scene {
        ChatScene()
    }
}
#else
/// Without SwiftUI, the package has only the model and its tests.
@main enum ChatApp {
    static func main() {
        print("The views of this app require SwiftUI. `make test-app` tests its model.")
    }
}
#endif

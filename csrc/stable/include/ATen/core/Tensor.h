#include "../../../tensor.h"
